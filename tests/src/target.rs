//! A running target in its own process group. Its output goes to files, and it is killed when
//! dropped.

use crate::apart;
use crate::dump::{dump, family};
use crate::place::Scratch;
use crate::racing::remove_segments;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

/// A process that a test has started in the background. Dropping it kills it and its descendants
/// and removes their segments.
pub struct Target {
    child: Child,
    shown: String,
    scratch: Scratch,
    ended: Option<ExitStatus>,
    /// True if dropping it keeps the segments, because the test inspects the remains of a session.
    leaves: bool,
}

/// A program at low priority, so that other processes run first.
pub fn nice(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("nice");
    command.args(["-n", "10"]).arg(program);
    command
}

impl Target {
    /// Starts a program in the background.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start<S: AsRef<OsStr>>(
        program: impl AsRef<OsStr>,
        args: impl IntoIterator<Item = S>,
    ) -> Self {
        let mut command = Command::new(program);
        command.args(args);
        Self::spawn(command)
    }

    /// Like [`Self::start`], at low priority (see [`nice`]), so that repeated changes to it are not
    /// slowed down.
    pub fn start_nice<S: AsRef<OsStr>>(
        program: impl AsRef<OsStr>,
        args: impl IntoIterator<Item = S>,
    ) -> Self {
        let mut command = nice(program);
        command.args(args);
        Self::spawn(command)
    }

    /// Starts a command in the background; its streams and process group are set here.
    pub fn spawn(mut command: Command) -> Self {
        let scratch = Scratch::new("target");
        let create = |name| File::create(scratch.file(name)).expect("create in an own folder");
        let shown = format!("{command:?}");
        command
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stdout(create("stdout"))
            .stderr(create("stderr"));
        let child = apart::spawn(&mut command).unwrap_or_else(|e| panic!("start {shown}: {e}"));
        Self {
            child,
            shown,
            scratch,
            ended: None,
            leaves: false,
        }
    }

    /// Waits until its standard output contains `text`.
    ///
    /// # Panics
    /// If it does not within 20 seconds, or ends first.
    pub fn await_output(mut self, text: &str) -> Self {
        self.until(Duration::from_secs(20), &format!("printed {text:?}"), |t| {
            t.stdout().contains(text)
        });
        self
    }

    /// Waits for up to 20 seconds until its first thread is in the system call with this number
    /// (proc_pid_syscall(5)).
    ///
    /// # Panics
    /// If it is not in time, or if the target ends first.
    pub fn await_syscall(mut self, number: i64) -> Self {
        let file = format!("/proc/{}/syscall", self.pid());
        let start = format!("{number} ");
        self.until(Duration::from_secs(20), &format!("begun {number}"), |_| {
            std::fs::read_to_string(&file).is_ok_and(|call| call.starts_with(&start))
        });
        self
    }

    /// Waits until a condition holds.
    ///
    /// # Panics
    /// If it does not hold in time, or if the target ends first.
    pub fn until(&mut self, limit: Duration, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        let end = Instant::now() + limit;
        while !holds(self) {
            let over = self.poll().is_some() || Instant::now() > end;
            assert!(!over || holds(self), "has not {what}:\n{}", self.report());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its standard output so far.
    pub fn stdout(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.scratch.file("stdout")).unwrap_or_default())
            .into_owned()
    }

    /// Its standard error so far.
    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.scratch.file("stderr")).unwrap_or_default())
            .into_owned()
    }

    /// Its exit status if it has ended; `None` while it runs.
    pub fn poll(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().expect("wait for an own child");
        }
        self.ended
    }

    /// Sends a signal to the process only. Ignores errors.
    pub fn signal(&self, signal: Signal) {
        let _ = kill(Pid::from_raw(self.pid() as i32), signal);
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// If it does not end in time. The message names a folder with a dump of its processes.
    pub fn wait(&mut self, limit: Duration) -> ExitStatus {
        let end = Instant::now() + limit;
        loop {
            if let Some(status) = self.poll() {
                return status;
            }
            assert!(
                Instant::now() < end,
                "has not ended within {limit:?}:\n{}",
                self.report()
            );
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Sends SIGTERM, waits, and checks for status 0 and a last line that starts with `line`.
    /// Returns that line. The segments are kept.
    ///
    /// # Panics
    /// If it does not end within a minute, or a check fails.
    pub fn finish(mut self, line: &str) -> String {
        self.leaves = true;
        self.signal(Signal::SIGTERM);
        // On a busy machine, some programs need long to check their results.
        let status = self.wait(Duration::from_secs(60));
        let stdout = self.stdout();
        let last = stdout.lines().last().unwrap_or_default();
        assert!(
            status.success() && last.starts_with(line),
            "expected {line:?}:\n{}",
            self.report()
        );
        last.to_owned()
    }

    /// The command and its output. If it still runs, also the folder with a dump of its processes.
    pub fn report(&mut self) -> String {
        let state = match self.poll() {
            Some(status) => status.to_string(),
            None => format!("running: {}", dump("target", &family(self.pid())).display()),
        };
        let (out, err) = (self.stdout(), self.stderr());
        format!(
            "{}\n{state}\n--- standard output\n{out}\n--- standard error\n{err}\n---",
            self.shown
        )
    }
}

/// The ids of the processes that a process has started, directly or through others; parents first.
pub fn descendants(pid: u32) -> Vec<u32> {
    let mut family = family(pid);
    family.retain(|&other| other != pid);
    family
}

impl Drop for Target {
    fn drop(&mut self) {
        let (family, own) = (family(self.pid()), Pid::from_raw(self.pid() as i32));
        if self.poll().is_none() {
            for &pid in &family {
                let _ = kill(Pid::from_raw(pid as i32), Signal::SIGKILL);
            }
            // A thread of it that this thread traces stays until its end is reported here, and
            // the process with it.
            while self.poll().is_none() {
                let tasks = fs::read_dir(format!("/proc/{}/task", self.pid()));
                let names = tasks.into_iter().flatten().filter_map(|task| task.ok());
                let tids = names.filter_map(|task| task.file_name().to_str()?.parse().ok());
                for tid in tids.map(Pid::from_raw).filter(|&tid| tid != own) {
                    let _ = waitpid(tid, Some(WaitPidFlag::__WALL | WaitPidFlag::WNOHANG));
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        if !self.leaves {
            family.into_iter().for_each(remove_segments);
        }
    }
}
