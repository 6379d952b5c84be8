//! A redis server under any command, driven by a fixed script through redis-cli.

use crate::command::Run;
use crate::compile::source;
use crate::place::Scratch;
use crate::target::Target;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Duration;

/// The results of a session with the server.
pub struct Session {
    /// All answers to the script.
    pub answers: String,
    /// The exit status of the command that ran the server; `None` if a signal ended it.
    pub code: Option<i32>,
    /// The standard output of the command that ran the server, followed by its standard error.
    pub output: String,
}

/// The server's program; Debian's redis-server is a link to it.
pub const SERVER: &str = "/usr/bin/redis-server";

/// The server's arguments: a socket and files in `dir`, no saving, and no answers that depend on
/// the time.
pub fn arguments(dir: &Scratch) -> Vec<String> {
    let socket = dir.file("socket").display().to_string();
    let folder = dir.path().display().to_string();
    let pairs = [
        ("--port", "0"),
        ("--unixsocket", &socket),
        ("--dir", &folder),
        ("--save", ""),
        ("--appendonly", "no"),
        ("--loglevel", "warning"),
    ];
    pairs
        .iter()
        .flat_map(|(name, value)| [(*name).to_owned(), (*value).to_owned()])
        .collect()
}

/// A server that has opened its socket in `dir`.
///
/// # Panics
/// If it does not open it in time.
pub fn serving(dir: &Scratch) -> Target {
    let mut command = Command::new(SERVER);
    command.args(arguments(dir));
    serving_by(command, dir)
}

/// Like [`serving`], with a command that starts the server.
fn serving_by(command: Command, dir: &Scratch) -> Target {
    let mut server = Target::spawn(command);
    let socket = dir.file("socket");
    server.until(Duration::from_secs(30), "opened its socket", |_| {
        UnixStream::connect(&socket).is_ok()
    });
    server
}

/// Starts a server by this command, plays `tests/programs/script.redis`, and shuts it down.
///
/// # Panics
/// If the server does not answer, or does not end in time.
pub fn play(command: Command, dir: &Scratch) -> Session {
    let mut server = serving_by(command, dir);
    let socket = dir.file("socket");
    let client = |run: Run| {
        run.args(["-s".as_ref(), socket.as_os_str()])
            .limit(Duration::from_secs(120))
    };
    let script = source("script.redis");
    let played = client(Run::new("redis-cli")).stdin(&script).run().expect(0);
    client(Run::new("redis-cli"))
        .args(["SHUTDOWN", "NOSAVE"])
        .run();
    let status = server.wait(Duration::from_secs(60));
    let output = server.stdout() + &server.stderr();
    Session {
        answers: played.stdout,
        code: status.code(),
        output,
    }
}
