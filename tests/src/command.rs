//! Runs a command to completion under a time limit.

use crate::apart;
use crate::dump::{dump, family};
use crate::place::{Scratch, ipath};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The user and group id of Debian's unprivileged user.
pub const NOBODY: u32 = 65534;

/// A command to run. Standard input is empty unless a file is given.
pub struct Run {
    command: Command,
    shown: String,
    stdin: Option<File>,
    limit: Duration,
}

/// A command that has ended.
pub struct Finished {
    /// The command line, for messages.
    pub shown: String,
    /// Its exit status.
    pub status: ExitStatus,
    /// Everything it wrote to standard output.
    pub stdout: String,
    /// Everything it wrote to standard error, except for `progress`.
    pub stderr: String,
    /// Lines on standard error that name long steps. They depend on the machine.
    pub progress: String,
    /// The time from start to end.
    pub elapsed: Duration,
    /// The resources that it used.
    pub cost: Cost,
}

/// The resources that the kernel accounts to a command and to the children it waited for.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Time on a processor, in user and in system mode.
    pub cpu: Duration,
    /// The largest resident set, in KiB.
    pub max_rss_kib: u64,
}

impl Run {
    /// `program` without arguments, in the locale C, with a limit of 60 seconds.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        let shown = program.as_ref().to_string_lossy().into_owned();
        let mut command = Command::new(program);
        command.env("LC_ALL", "C");
        Self {
            command,
            shown,
            stdin: None,
            limit: Duration::from_secs(60),
        }
    }

    /// `ipath` with these arguments.
    ///
    /// With `IPATH_TEST_METRICS` in the environment, sessions that name no metrics use those.
    pub fn ipath<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Self {
        let mut args: Vec<OsString> = args.into_iter().map(|a| a.as_ref().to_owned()).collect();
        let makes_session = args.first().is_some_and(|a| a == "attach" || a == "run");
        let names_none = !args.iter().any(|a| a == "-m" || a == "--metric");
        if let Some(metrics) = std::env::var_os("IPATH_TEST_METRICS")
            && makes_session
            && names_none
        {
            args.splice(1..1, ["-m".into(), metrics]);
        }
        Self::new(ipath()).args(args)
    }

    /// Adds one argument.
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.shown.push(' ');
        self.shown.push_str(&arg.as_ref().to_string_lossy());
        self.command.arg(arg);
        self
    }

    /// Adds arguments.
    pub fn args<S: AsRef<OsStr>>(self, args: impl IntoIterator<Item = S>) -> Self {
        args.into_iter().fold(self, Self::arg)
    }

    /// Sets one environment variable.
    pub fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.command.env(name, value.into());
        self
    }

    /// Removes the variables whose names begin with `prefix`.
    pub fn without_env(mut self, prefix: &str) -> Self {
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with(prefix) {
                self.command.env_remove(name);
            }
        }
        self
    }

    /// Runs it as the unprivileged user [`NOBODY`]; requires root.
    pub fn as_nobody(mut self) -> Self {
        self.command.uid(NOBODY).gid(NOBODY);
        self
    }

    /// Reads standard input from a file.
    ///
    /// # Panics
    /// If the file cannot be opened.
    pub fn stdin(mut self, path: &Path) -> Self {
        self.stdin =
            Some(File::open(path).unwrap_or_else(|e| panic!("open {}: {e}", path.display())));
        self
    }

    /// Replaces the time limit.
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Runs it to completion.
    ///
    /// # Panics
    /// If it cannot be started, or does not end in time. In the latter case it is killed, and the
    /// message names a folder with a dump of it and its children.
    pub fn run(self) -> Finished {
        let scratch = Scratch::new("run");
        let (out, err) = (scratch.file("stdout"), scratch.file("stderr"));
        let Self {
            mut command,
            shown,
            stdin,
            limit,
        } = self;
        command
            .stdin(stdin.map_or_else(Stdio::null, Stdio::from))
            .stdout(File::create(&out).expect("create in an own folder"))
            .stderr(File::create(&err).expect("create in an own folder"));
        let start = Instant::now();
        let child = apart::spawn(&mut command).unwrap_or_else(|e| panic!("start {shown}: {e}"));
        let pid = child.id();
        let ended = wait(child, start + limit);
        let elapsed = start.elapsed();
        let (stdout, stderr) = (read(&out), read(&err));
        let (progress, stderr): (Vec<&str>, Vec<&str>) = stderr
            .split_inclusive('\n')
            .partition(|line| line.starts_with("ipath: ") && line.ends_with(" s so far)\n"));
        let (progress, stderr) = (progress.concat(), stderr.concat());
        let Some((status, cost)) = ended else {
            let reports = kill_family("timeout", pid);
            panic!(
                "{shown}\nhas not ended within {limit:?}; processes: {}\n{}",
                reports.display(),
                streams(&stdout, &stderr)
            );
        };
        Finished {
            shown,
            status,
            stdout,
            stderr,
            progress,
            elapsed,
            cost,
        }
    }
}

/// Dumps and then kills a process that a test started, with its descendants. Returns the folder of
/// the dumps.
fn kill_family(name: &str, pid: u32) -> std::path::PathBuf {
    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;
    let pids = family(pid);
    let reports = dump(name, &pids);
    for pid in pids {
        let _ = kill(Pid::from_raw(pid as i32), Signal::SIGKILL);
    }
    let _ = nix::sys::wait::waitpid(Pid::from_raw(pid as i32), None);
    reports
}

/// Waits for the end of a command until the time `end`. Returns the status and the cost, or None on
/// timeout.
fn wait(child: Child, end: Instant) -> Option<(ExitStatus, Cost)> {
    let pid = child.id() as libc::pid_t;
    drop(child); // reaped below by wait4, which gives its rusage
    loop {
        let mut status = 0;
        // SAFETY: rusage is plain integers, for which all zeroes is a valid value.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: both pointers are to live locals of the types wait4 writes.
        let got = unsafe { libc::wait4(pid, &mut status, libc::WNOHANG, &mut usage) };
        if got == pid {
            let time = |t: libc::timeval| {
                Duration::from_secs(t.tv_sec as u64) + Duration::from_micros(t.tv_usec as u64)
            };
            let cost = Cost {
                cpu: time(usage.ru_utime) + time(usage.ru_stime),
                max_rss_kib: usage.ru_maxrss as u64,
            };
            return Some((ExitStatus::from_raw(status), cost));
        }
        assert!(got == 0, "wait4 {pid}: {}", std::io::Error::last_os_error());
        if Instant::now() >= end {
            return None;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn read(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

fn streams(stdout: &str, stderr: &str) -> String {
    format!("--- standard output\n{stdout}\n--- standard error\n{stderr}\n---")
}

impl Finished {
    /// The command, its status and its output, for messages.
    pub fn report(&self) -> String {
        format!(
            "{}\n{}\n{}",
            self.shown,
            self.status,
            streams(&self.stdout, &self.stderr)
        )
    }

    /// The status as a shell shows it: 128+N for signal N.
    pub fn code(&self) -> i32 {
        self.status
            .code()
            .unwrap_or_else(|| 128 + self.status.signal().unwrap_or(0))
    }

    /// Returns `self` if the exit status is `code`.
    ///
    /// # Panics
    /// With the report, if it is not.
    pub fn expect(self, code: i32) -> Self {
        assert!(
            self.code() == code,
            "expected exit status {code}:\n{}",
            self.report()
        );
        self
    }

    /// The line of the error, if the command failed as the contract requires: status 1, and on
    /// standard error one line `ipath: OPERATION SUBJECT: CAUSE` and nothing else except hints.
    ///
    /// # Panics
    /// With the report, if it failed in another way or not at all.
    pub fn expect_error(&self) -> String {
        self.expect_line(1)
    }

    /// Like [`Self::expect_error`], for a wrong command line: status 2.
    ///
    /// # Panics
    /// With the report, if it failed in another way or not at all.
    pub fn expect_usage(&self) -> String {
        self.expect_line(2)
    }

    /// The line of the error, with its prefix `ipath: `; see [`Self::expect_error`].
    fn expect_line(&self, status: i32) -> String {
        assert!(
            self.code() == status,
            "expected exit status {status}:\n{}",
            self.report()
        );
        let lines: Vec<&str> = self
            .stderr
            .lines()
            .filter(|l| !l.starts_with("hint: "))
            .collect();
        let [line] = lines[..] else {
            panic!(
                "expected one line `ipath: ...` on standard error:\n{}",
                self.report()
            );
        };
        let rest = line.strip_prefix("ipath: ").unwrap_or_default();
        let cause = rest.split_once(": ").map_or("", |(_, cause)| cause);
        assert!(
            !cause.is_empty(),
            "not `ipath: OPERATION SUBJECT: CAUSE`:\n{}",
            self.report()
        );
        line.to_owned()
    }

    /// The text after `hint: ` in the lines of standard error, joined by line feeds; empty if there
    /// is none.
    pub fn hints(&self) -> String {
        self.stderr
            .lines()
            .filter_map(|l| l.strip_prefix("hint: "))
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// Standard output as JSON.
    ///
    /// # Panics
    /// With the report, if it is not JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|e| panic!("standard output is no JSON: {e}\n{}", self.report()))
    }
}
