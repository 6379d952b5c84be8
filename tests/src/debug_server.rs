//! A debuginfod server on the loopback, as much of one as its client needs.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a server does when it is asked for a debug file.
#[derive(Clone)]
pub enum Answer {
    /// It sends these bytes, whatever it is asked for.
    File(Vec<u8>),
    /// It has none.
    NotFound,
    /// It never answers.
    Nothing,
}

/// A server for as long as the test's process lives.
pub struct DebugServer {
    /// What to set `DEBUGINFOD_URLS` to.
    pub url: String,
    asked: Arc<AtomicU64>,
}

impl DebugServer {
    /// Starts one.
    ///
    /// # Panics
    /// When the system has no port.
    pub fn start(answer: Answer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let asked = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&asked);
        std::thread::spawn(move || {
            let mut hung = Vec::new();
            for stream in listener.incoming().flatten() {
                count.fetch_add(1, Ordering::Relaxed);
                match &answer {
                    Answer::Nothing => hung.push(stream),
                    // A client that has gone away is no matter.
                    Answer::NotFound => drop(send(stream, "404 Not Found", b"")),
                    Answer::File(bytes) => drop(send(stream, "200 OK", bytes)),
                }
            }
        });
        Self { url, asked }
    }

    /// How often it has been asked.
    pub fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }
}

fn send(mut stream: TcpStream, status: &str, bytes: &[u8]) -> std::io::Result<()> {
    let mut from = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    while from.read_line(&mut line)? > 2 {
        line.clear();
    }
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        bytes.len()
    )?;
    stream.write_all(bytes)
}
