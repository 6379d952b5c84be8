//! A command on a new terminal, which a test can read, leave unread, and hang up.

use crate::apart::reset_signals;
use crate::dump::family;
use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{Termios, tcgetattr};
use nix::unistd::Pid;

/// The time limit for anything that a test expects.
const LIMIT: Duration = Duration::from_secs(60);

/// Rows and columns of each terminal.
const SIZE: (NonZeroU16, NonZeroU16) = (
    NonZeroU16::new(40).expect("not 0"),
    NonZeroU16::new(120).expect("not 0"),
);

/// A command that leads the session of a new terminal. It is killed when dropped, with its
/// descendants.
pub struct Pty {
    child: Child,
    /// The command line, for messages.
    shown: String,
    /// None once the test has hung up.
    master: Option<File>,
    slave: File,
    /// The output read since the last [`Pty::forget`].
    seen: Vec<u8>,
    /// The screen of a terminal after the output in `seen`.
    screen: vt100::Parser,
    ended: Option<ExitStatus>,
}

impl Pty {
    /// Starts a command. With `streams` its standard streams are set to the terminal; else the
    /// command's own setting stays.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn spawn(mut command: Command, streams: bool) -> Self {
        let size = Winsize {
            ws_row: SIZE.0.get(),
            ws_col: SIZE.1.get(),
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let pair = openpty(&size, None).expect("a new terminal");
        let (master, slave) = (File::from(pair.master), File::from(pair.slave));
        for fd in [&master, &slave] {
            let close = FcntlArg::F_SETFD(nix::fcntl::FdFlag::FD_CLOEXEC);
            fcntl(fd.as_fd(), close).expect("an open descriptor");
        }
        fcntl(master.as_fd(), FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).expect("an open descriptor");
        let shown = format!("{command:?}");
        let stream = || slave.try_clone().expect("an open descriptor");
        command.env("LC_ALL", "C").env("TERM", "xterm");
        if streams {
            command.stdin(stream()).stdout(stream()).stderr(stream());
        }
        let terminal = slave.as_raw_fd();
        let lead = move || {
            nix::unistd::setsid()?;
            // SAFETY: takes a number and no pointer.
            match unsafe { libc::ioctl(terminal, libc::TIOCSCTTY, 0) } {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        };
        // SAFETY: makes only two system calls.
        unsafe { command.pre_exec(lead) };
        let child = reset_signals(&mut command)
            .spawn()
            .unwrap_or_else(|e| panic!("start {shown}: {e}"));
        Self {
            child,
            shown,
            master: Some(master),
            slave,
            seen: Vec::new(),
            screen: screen(),
            ended: None,
        }
    }

    /// Starts a program with arguments; its standard streams are the terminal.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start<S: AsRef<std::ffi::OsStr>>(
        program: impl AsRef<std::ffi::OsStr>,
        args: impl IntoIterator<Item = S>,
    ) -> Self {
        let mut command = Command::new(program);
        command.args(args);
        Self::spawn(command, true)
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The letter of its state in /proc: `S`, `R`, `T` for stopped; `?` if it does not exist.
    pub fn state(&self) -> char {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid()));
        let stat = stat.unwrap_or_default();
        let after = stat.rsplit(") ").next().unwrap_or_default();
        after.chars().next().unwrap_or('?')
    }

    /// Its output that has been read since the last [`Self::forget`].
    pub fn seen(&self) -> String {
        String::from_utf8_lossy(&self.seen).into_owned()
    }

    /// Reads and discards the output so far. The screen is blank until the next output.
    pub fn forget(&mut self) {
        self.read();
        self.seen.clear();
        self.screen = screen();
    }

    fn read(&mut self) {
        let mut buffer = [0; 4096];
        while let Some(master) = &mut self.master {
            match master.read(&mut buffer) {
                Ok(n) if n > 0 => {
                    self.seen.extend(&buffer[..n]);
                    self.screen.process(&buffer[..n]);
                }
                _ => return,
            }
        }
    }

    /// Reads until `text` is in the output or on the screen: a view writes only the changed cells.
    ///
    /// # Panics
    /// If `text` does not appear in time, or the command ends first.
    pub fn shows(&mut self, text: &str) {
        self.until(&format!("shown {text:?}"), |pty| {
            pty.seen().contains(text) || pty.screen.screen().contents().contains(text)
        });
    }

    /// The text of the screen after the output that has been read.
    pub fn screen(&self) -> String {
        self.screen.screen().contents()
    }

    /// Reads until a condition holds.
    ///
    /// # Panics
    /// If it does not hold in time, or the command ends first.
    pub fn until(&mut self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        let end = Instant::now() + LIMIT;
        loop {
            let is_over = self.poll().is_some() || Instant::now() > end;
            self.read();
            if holds(self) {
                return;
            }
            assert!(!is_over, "has not {what}:\n{}", self.report());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Types these keys. Does nothing after [`Self::hang_up`].
    pub fn send(&mut self, keys: &[u8]) {
        if let Some(master) = &mut self.master {
            master.write_all(keys).expect("room for a few keys");
        }
    }

    /// Closes the master side, as closing a terminal's window does.
    pub fn hang_up(&mut self) {
        self.master = None;
    }

    /// The terminal's settings.
    pub fn termios(&self) -> Termios {
        tcgetattr(&self.slave).expect("a terminal")
    }

    /// Sends a signal to the command only.
    pub fn signal(&self, signal: Signal) {
        let _ = kill(Pid::from_raw(self.pid() as i32), signal);
    }

    /// The exit status of the command; `None` while it runs.
    fn poll(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().expect("wait for an own child");
        }
        self.ended
    }

    /// Waits for the command's end without reading its output. Returns the status as a shell shows
    /// it.
    ///
    /// # Panics
    /// If it does not end in time.
    pub fn wait_unread(&mut self) -> i32 {
        let end = Instant::now() + LIMIT;
        loop {
            if let Some(status) = self.poll() {
                return status
                    .code()
                    .unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
            }
            assert!(Instant::now() < end, "has not ended:\n{}", self.report());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Reads the output until the command's end. Returns the status as a shell shows it.
    ///
    /// # Panics
    /// If it does not end in time.
    pub fn wait(&mut self) -> i32 {
        let end = Instant::now() + LIMIT;
        while self.poll().is_none() && Instant::now() < end {
            self.read();
            std::thread::sleep(Duration::from_millis(5));
        }
        let code = self.wait_unread();
        self.read();
        code
    }

    /// The command, its state, the last 2000 bytes of its output and its screen, for messages.
    pub fn report(&mut self) -> String {
        self.read();
        let state = match self.poll() {
            Some(status) => status.to_string(),
            None => format!("running ({})", self.state()),
        };
        let last = &self.seen[self.seen.len().saturating_sub(2000)..];
        let last = String::from_utf8_lossy(last);
        let screen = self.screen.screen().contents();
        format!(
            "{}\n{state}\n--- terminal\n{last:?}\n--- screen\n{screen}\n---",
            self.shown
        )
    }
}

/// A blank terminal.
fn screen() -> vt100::Parser {
    vt100::Parser::new(SIZE.0, SIZE.1, 0)
}

impl Drop for Pty {
    fn drop(&mut self) {
        if self.poll().is_none() {
            for pid in family(self.pid()) {
                let _ = kill(Pid::from_raw(pid as i32), Signal::SIGKILL);
            }
            let _ = self.child.wait();
        }
    }
}
