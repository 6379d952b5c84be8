//! A server of HTTP/1.1 for scrapers (RFC 9112): each connection has one request, whose head is read within a time and a size, and
//! whose body, if it has one, is nobody's.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Longest head of a request, bytes, and most of its headers.
const LONGEST: usize = 16 << 10;
const MOST_HEADERS: usize = 64;
/// How long one may take to ask, and as long again to read the answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Connections at a time. For a further one the oldest is closed: it is nobody's who asks and reads at once.
const MOST: usize = 64;
/// Bytes of a body that are read and forgotten, so that the answer is not lost with them.
const MOST_OF_BODY: usize = 256 << 10;

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Status code, and what that is called.
    pub status: (u16, &'static str),
    /// Media type.
    pub kind: &'static str,
    /// The content.
    pub text: String,
}

impl Answer {
    /// A line of text.
    pub fn line(status: (u16, &'static str), text: String) -> Self {
        Self {
            status,
            kind: "text/plain; charset=utf-8",
            text,
        }
    }
}

/// A request. One that is dropped is not answered.
#[derive(Debug)]
pub struct Request {
    /// What is asked for, without a query.
    pub path: String,
    /// True of GET and HEAD.
    pub is_read: bool,
    /// The header `Accept`.
    pub accept: String,
    answer: SyncSender<Answer>,
}

impl Request {
    /// Answers it.
    pub fn answer(self, answer: Answer) {
        // Who has gone away needs no answer.
        let _ = self.answer.send(answer);
    }
}

/// Listens as long as this process lives.
pub struct Server {
    address: SocketAddr,
    requests: Receiver<Request>,
}

impl Server {
    /// Listens at an address.
    ///
    /// # Errors
    /// It cannot.
    pub fn listen(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let (sender, requests) = channel();
        let accept = move || accept(&listener, &sender);
        std::thread::Builder::new()
            .name("accept".into())
            .spawn(accept)?;
        Ok(Self { address, requests })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The next request, if one comes in that time.
    pub fn next(&self, time: Duration) -> Option<Request> {
        self.requests.recv_timeout(time).ok()
    }
}

fn accept(listener: &TcpListener, requests: &Sender<Request>) {
    const PAUSE: Duration = Duration::from_millis(50);
    let open = Connections::default();
    for (number, stream) in (0..).zip(listener.incoming()) {
        let Ok(stream) = stream else {
            // There is no descriptor for it, for now.
            std::thread::sleep(PAUSE);
            continue;
        };
        let Some(one) = open.take_in(number, &stream) else {
            continue;
        };
        let requests = requests.clone();
        let serve = move || {
            // What goes wrong is between this connection and who has made it.
            let _ = serve(stream, &requests);
            drop(one);
        };
        let _ = std::thread::Builder::new()
            .name("connection".into())
            .spawn(serve);
    }
}

/// The connections that are open, each with its number, the oldest first.
#[derive(Clone, Default)]
struct Connections(Arc<Mutex<VecDeque<(u64, TcpStream)>>>);

impl Connections {
    fn lock(&self) -> MutexGuard<'_, VecDeque<(u64, TcpStream)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts one more; none where there is no descriptor for that.
    fn take_in(&self, number: u64, stream: &TcpStream) -> Option<Open> {
        let stream = stream.try_clone().ok()?;
        let mut all = self.lock();
        while all.len() >= MOST {
            let oldest = all.pop_front();
            // Whoever serves it finds it ended.
            let _ = oldest.map(|(_, stream)| stream.shutdown(Shutdown::Both));
        }
        all.push_back((number, stream));
        Some(Open(self.clone(), number))
    }
}

/// One of them.
struct Open(Connections, u64);

impl Drop for Open {
    fn drop(&mut self) {
        let Self(all, number) = self;
        all.lock().retain(|(other, _)| other != number);
    }
}

fn serve(mut stream: TcpStream, requests: &Sender<Request>) -> io::Result<()> {
    let (sender, answered) = sync_channel(1);
    let asked = read_head(&mut stream, sender)?;
    let (answer, is_head) = match asked {
        Ok((request, is_head)) => {
            if requests.send(request).is_err() {
                return Ok(());
            }
            match answered.recv() {
                Ok(answer) => (answer, is_head),
                Err(_) => return Ok(()),
            }
        }
        Err(answer) => (answer, false),
    };
    let Answer { status, kind, text } = answer;
    // RFC 9110 section 15.5.6.
    let allow = if status.0 == 405 {
        "Allow: GET, HEAD\r\n"
    } else {
        ""
    };
    let head = format!(
        "HTTP/1.1 {} {}\r\n{allow}Content-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        status.0,
        status.1,
        text.len()
    );
    let until = Instant::now() + PATIENCE;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(head.as_bytes())?;
    if !is_head {
        stream.write_all(text.as_bytes())?;
    }
    stream.shutdown(Shutdown::Write)?;
    let mut left = MOST_OF_BODY;
    let mut bytes = [0; 4096];
    while left > 0 {
        match read_until(&mut stream, &mut bytes, until)? {
            0 => break,
            n => left = left.saturating_sub(n),
        }
    }
    Ok(())
}

/// Reads what has come by a moment, which is something or the end.
fn read_until(stream: &mut TcpStream, bytes: &mut [u8], until: Instant) -> io::Result<usize> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(ErrorKind::TimedOut.into());
    }
    stream.set_read_timeout(Some(left))?;
    stream.read(bytes)
}

/// The request whose head comes, and whether its content is not wanted; or what is to be answered without asking anybody.
fn read_head(
    stream: &mut TcpStream,
    answer: SyncSender<Answer>,
) -> io::Result<Result<(Request, bool), Answer>> {
    let until = Instant::now() + PATIENCE;
    let (mut head, mut bytes) = (Vec::new(), [0; 2048]);
    loop {
        match read_until(stream, &mut bytes, until)? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            n => head.extend_from_slice(&bytes[..n]),
        }
        match parse(&head) {
            Ok(None) if head.len() < LONGEST => {}
            Ok(None) => {
                let status = (431, "Request Header Fields Too Large");
                return Ok(Err(Answer::line(status, "too long\n".to_owned())));
            }
            Ok(Some(asked)) => {
                let request = Request {
                    path: asked.path,
                    is_read: matches!(asked.method.as_str(), "GET" | "HEAD"),
                    accept: asked.accept,
                    answer,
                };
                return Ok(Ok((request, asked.method == "HEAD")));
            }
            Err(error) => {
                let text = format!("{error}\n");
                return Ok(Err(Answer::line((400, "Bad Request"), text)));
            }
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Asked {
    method: String,
    path: String,
    accept: String,
}

/// What a head asks for; nothing yet where it is not all of it.
fn parse(head: &[u8]) -> Result<Option<Asked>, httparse::Error> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    if request.parse(head)?.is_partial() {
        return Ok(None);
    }
    let accepts = request.headers.iter();
    let accepts = accepts.filter(|header| header.name.eq_ignore_ascii_case("Accept"));
    let accepts: Vec<_> = accepts
        .map(|header| String::from_utf8_lossy(header.value))
        .collect();
    let target = request.path.unwrap_or_default();
    // With the server named, as to a proxy (RFC 9112, 3.2.2).
    let target = match target.split_once("://") {
        Some((scheme, named)) if scheme.eq_ignore_ascii_case("http") => {
            named.find('/').map_or("/", |at| &named[at..])
        }
        _ => target,
    };
    let path = target.split('?').next().unwrap_or_default();
    Ok(Some(Asked {
        method: request.method.unwrap_or_default().to_owned(),
        path: path.to_owned(),
        accept: accepts.join(","),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_read_whole() {
        let text =
            b"GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\nACCEPT: one\r\nAccept: two\r\n\r\nbody";
        let end = text.len() - 4;
        for len in 0..end {
            assert_eq!(parse(&text[..len]), Ok(None), "{len}");
        }
        let asked = Asked {
            method: "GET".to_owned(),
            path: "/metrics".to_owned(),
            accept: "one,two".to_owned(),
        };
        assert_eq!(parse(text), Ok(Some(asked)));
        for (target, path) in [
            ("http://a:1/metrics?x", "/metrics"),
            ("HTTP://a:1/metrics", "/metrics"),
            ("http://a", "/"),
            ("/metrics?of=http://a/b", "/metrics"),
            ("*", "*"),
        ] {
            let head = format!("GET {target} HTTP/1.1\r\n\r\n");
            let asked = parse(head.as_bytes()).unwrap().unwrap();
            assert_eq!(asked.path, path, "{target}");
        }
        assert!(parse(b"\0\0\0").is_err());
        assert!(parse(b"GET /metrics HTTP/9.9\r\n\r\n").is_err());
    }

    /// What of a request is not read takes neither memory nor time of others.
    #[test]
    fn requests_with_bodies_are_answered() {
        let server = Server::listen(([127, 0, 0, 1], 0).into()).unwrap();
        let mut stalled = TcpStream::connect(server.address()).unwrap();
        stalled.write_all(b"GET /metrics HT").unwrap();
        let ask = |head: &str| {
            let mut stream = TcpStream::connect(server.address()).unwrap();
            stream.write_all(head.as_bytes()).unwrap();
            if let Some(request) = server.next(Duration::from_secs(5)) {
                let text = format!("{} {}", request.is_read, request.path);
                request.answer(Answer::line((200, "OK"), text));
            }
            let mut all = String::new();
            stream.shutdown(Shutdown::Write).unwrap();
            stream.read_to_string(&mut all).unwrap();
            all
        };
        for length in ["0", "10", "99999999999"] {
            let head = format!("POST /a HTTP/1.1\r\nContent-Length: {length}\r\n\r\n");
            let answer = ask(&head);
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
            assert!(answer.ends_with("\r\n\r\nfalse /a"), "{answer}");
        }
        let answer = ask("HEAD /b HTTP/1.0\r\n\r\n");
        assert!(
            answer.ends_with("Content-Length: 7\r\nConnection: close\r\n\r\n"),
            "{answer}"
        );
        let long = format!("GET /{} HTTP/1.1\r\n", "x".repeat(LONGEST));
        assert!(ask(&long).starts_with("HTTP/1.1 431 "), "{}", ask(&long));
        assert!(ask("no\r\n\r\n").starts_with("HTTP/1.1 400 "));
        // Nor do any number of those who never ask.
        let stall = |_| {
            let mut stream = TcpStream::connect(server.address()).unwrap();
            stream.write_all(b"GET /metr").unwrap();
            stream
        };
        let stalled: Vec<TcpStream> = (0..3 * MOST).map(stall).collect();
        let answer = ask("GET /c HTTP/1.1\r\n\r\n");
        assert!(answer.ends_with("true /c"), "{answer}");
        drop(stalled);
    }
}
