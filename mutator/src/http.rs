//! An HTTP/1.1 server for scrapers (RFC 9112). Each connection carries one request. The size and
//! the time of its head are limited, and its body is ignored.

mod connections;
mod message;

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use nix::sys::socket::{Backlog, listen};

use connections::{Connections, Open};
use message::{Asked, parse};

pub use message::Answer;

/// The longest head of a request, in bytes.
const LONGEST: usize = 16 << 10;
/// The time limit for reading a request, and again for writing the answer.
const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 60 } else { 10 });
/// The stack size of a connection's thread, in bytes.
const STACK: usize = 256 << 10;
/// The most bytes of a body that are read and dropped. Otherwise the close would reset the
/// connection and lose the answer.
const MOST_OF_BODY: usize = 256 << 10;

/// A request. Dropping it closes the connection without an answer.
#[derive(Debug)]
pub struct Request {
    /// The requested path, without a query.
    pub path: String,
    /// True for GET and HEAD.
    pub is_read: bool,
    /// The value of the request's header `Accept`.
    pub accept: String,
    connections: Connections,
    /// The number of its connection.
    number: u64,
}

impl Request {
    fn of(connections: &Connections, (number, asked): (u64, Asked)) -> Self {
        Self {
            is_read: asked.is_read(),
            path: asked.path,
            accept: asked.accept,
            connections: connections.clone(),
            number,
        }
    }

    /// Sends `answer` to the client that made the request.
    pub fn answer(self, answer: Answer) {
        self.connections.answer(self.number, answer);
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        self.connections.give_up(self.number);
    }
}

/// A server that listens until this process ends.
pub struct Server {
    address: SocketAddr,
    connections: Connections,
}

impl Server {
    /// Listens on an address.
    ///
    /// # Errors
    /// The address cannot be bound, or the thread cannot be created.
    pub fn listen(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        // The library asks for a queue of 128. The kernel drops what exceeds the queue, and such a
        // client tries again after a second at the earliest.
        listen(&listener, Backlog::MAXCONN)?;
        let address = listener.local_addr()?;
        let connections = Connections::default();
        let open = connections.clone();
        std::thread::Builder::new()
            .name("accept".into())
            .spawn(move || accept(&listener, &open))?;
        Ok(Self {
            address,
            connections,
        })
    }

    /// The address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns all requests that wait for an answer. Waits up to `time` for the first one. Empty if
    /// none comes.
    pub fn requests(&self, time: Duration) -> Vec<Request> {
        let queued = self.connections.queued(time).into_iter();
        queued.map(|q| Request::of(&self.connections, q)).collect()
    }
}

fn accept(listener: &TcpListener, open: &Connections) {
    const PAUSE: Duration = Duration::from_millis(50);
    for (number, stream) in (0..).zip(listener.incoming()) {
        let Ok(stream) = stream else {
            // Out of descriptors for now.
            std::thread::sleep(PAUSE);
            continue;
        };
        let Some(one) = open.take_in(number, &stream) else {
            continue;
        };
        let serve = move || {
            // An error affects only this connection.
            let _ = serve(stream, &one);
        };
        let _ = std::thread::Builder::new()
            .name("connection".into())
            .stack_size(STACK)
            .spawn(serve);
    }
}

fn serve(mut stream: TcpStream, open: &Open) -> io::Result<()> {
    let (answer, is_head) = match read_head(&mut stream)? {
        Ok(asked) => {
            let is_head = asked.method == "HEAD";
            match open.answer_to(asked) {
                Some(answer) => (answer, is_head),
                None => return Ok(()),
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
    write_until(&mut stream, head.as_bytes(), until)?;
    if !is_head {
        write_until(&mut stream, text.as_bytes(), until)?;
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

/// Reads available bytes before the deadline. Returns their number, which is 0 at the end of the
/// stream. An error after the deadline.
fn read_until(stream: &mut TcpStream, bytes: &mut [u8], until: Instant) -> io::Result<usize> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(ErrorKind::TimedOut.into());
    }
    stream.set_read_timeout(Some(left))?;
    stream.read(bytes)
}

/// Writes all bytes by the deadline, however slowly the peer reads. An error after the deadline.
fn write_until(stream: &mut TcpStream, mut bytes: &[u8], until: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.set_write_timeout(Some(left))?;
        match stream.write(bytes)? {
            0 => return Err(ErrorKind::WriteZero.into()),
            n => bytes = &bytes[n..],
        }
    }
    Ok(())
}

/// Reads the head of a request. Returns the request, or the answer to a malformed one. An error if
/// the connection ends before, or the time is up.
fn read_head(stream: &mut TcpStream) -> io::Result<Result<Asked, Answer>> {
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
            Ok(Some(asked)) => return Ok(Ok(asked)),
            Err(error) => {
                let text = format!("{error}\n");
                return Ok(Err(Answer::line((400, "Bad Request"), text)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::connections::MAX_CONNECTIONS;
    use super::*;
    use std::sync::Arc;

    /// Unread bodies and stalled requests do not delay other requests.
    #[test]
    fn requests_with_bodies_are_answered() {
        let server = Server::listen(([127, 0, 0, 1], 0).into()).unwrap();
        let mut stalled = TcpStream::connect(server.address()).unwrap();
        stalled.write_all(b"GET /metrics HT").unwrap();
        let send = |head: &str| {
            let mut stream = TcpStream::connect(server.address()).unwrap();
            stream.write_all(head.as_bytes()).unwrap();
            stream
        };
        let read = |mut stream: TcpStream| {
            let mut all = String::new();
            stream.shutdown(Shutdown::Write).unwrap();
            stream.read_to_string(&mut all).unwrap();
            all
        };
        let ask = |head: &str| {
            let stream = send(head);
            for request in server.requests(Duration::from_secs(5)) {
                let text = format!("{} {}", request.is_read, request.path);
                request.answer(Answer::line((200, "OK"), text));
            }
            read(stream)
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
        // The server refuses these itself: the handler sees no request.
        for (head, status) in [(long.as_str(), "431"), ("no\r\n\r\n", "400")] {
            let answer = read(send(head));
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status} ")),
                "{answer}"
            );
        }
        assert!(server.requests(Duration::ZERO).is_empty());
        // Stalled clients do not delay others, however many there are.
        let stalled: Vec<TcpStream> = (0..3 * MAX_CONNECTIONS)
            .map(|_| send("GET /metr"))
            .collect();
        let answer = ask("GET /c HTTP/1.1\r\n\r\n");
        assert!(answer.ends_with("true /c"), "{answer}");
        drop(stalled);
    }

    /// The number of threads of this process that serve a connection.
    fn serving() -> usize {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm"));
        let names = tasks.flatten().filter_map(|task| name(task).ok());
        names.filter(|name| name == "connection\n").count()
    }

    /// Clients that hang up, and clients that never read, leave neither threads nor requests
    /// behind.
    #[test]
    fn clients_that_hang_up_are_not_kept() {
        let server = Server::listen(([127, 0, 0, 1], 0).into()).unwrap();
        let ask = |path: &str| {
            let mut stream = TcpStream::connect(server.address()).unwrap();
            let head = format!("GET {path} HTTP/1.1\r\n\r\n");
            stream.write_all(head.as_bytes()).unwrap();
            stream
        };
        // A waiting client is not displaced by clients that are gone.
        let mut patient = ask("/patient");
        let mut kept = Vec::new();
        for number in 0..12 * MAX_CONNECTIONS {
            let stream = ask("/gone");
            // Every third client stays and never reads.
            kept.extend((number % 3 == 0 && kept.len() < MAX_CONNECTIONS / 2).then_some(stream));
        }
        // Other tests in this program have connections, too.
        assert!(serving() <= 3 * MAX_CONNECTIONS, "{} threads", serving());
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            patient.read_to_end(&mut all).map(|_| all.len())
        });
        let end = Instant::now() + Duration::from_secs(60);
        let mut answered = 0;
        let text: Arc<str> = "x".repeat(1 << 20).into();
        let status = (200, "OK");
        loop {
            let requests = server.requests(Duration::from_secs(1));
            assert!(
                requests.len() <= MAX_CONNECTIONS,
                "{} are queued",
                requests.len()
            );
            if requests.is_empty() && reader.is_finished() {
                break;
            }
            assert!(Instant::now() < end, "the patient one is not answered");
            answered += requests.len();
            for request in requests {
                let kind = "text/plain";
                let text = text.clone();
                request.answer(Answer { status, kind, text });
            }
        }
        // Connections in the socket's backlog are answered, too, a few at a time.
        assert!(answered >= MAX_CONNECTIONS / 2, "{answered}");
        let read = reader.join().unwrap().unwrap();
        assert!(read > text.len(), "{read} bytes");
    }
}
