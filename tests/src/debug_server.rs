//! A minimal debuginfod server on the loopback interface.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The server's answer to every request for a debug file.
#[derive(Clone)]
pub enum Answer {
    /// These bytes.
    File(Vec<u8>),
    /// 404 Not Found.
    NotFound,
    /// No answer; the connection stays open.
    Nothing,
}

/// A server that runs until the test process ends.
pub struct DebugServer {
    /// The value for `DEBUGINFOD_URLS`.
    pub url: String,
    asked: Arc<AtomicU64>,
}

impl DebugServer {
    /// Starts a server.
    ///
    /// # Panics
    /// If no port is free.
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
                    // The client may have gone away.
                    Answer::NotFound => drop(send(stream, "404 Not Found", b"")),
                    Answer::File(bytes) => drop(send(stream, "200 OK", bytes)),
                }
            }
        });
        Self { url, asked }
    }

    /// The number of connections so far. A connection makes one request.
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
