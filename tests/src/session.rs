//! A session that stays in a target while the test continues.

use crate::command::{Finished, Run};
use crate::place::Scratch;
use crate::profile::Profile;
use crate::snapshot::ProcessState;
use crate::target::Target;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A session that a test started with `ipath attach --keep`.
pub struct Session {
    pid: String,
    scratch: Scratch,
}

impl Session {
    /// The existing session of this process. Does not check that there is one.
    pub fn of(pid: u32) -> Self {
        Self {
            pid: pid.to_string(),
            scratch: Scratch::new("session"),
        }
    }

    /// Attaches, measuring calls and times of these functions.
    ///
    /// # Panics
    /// If the command fails.
    pub fn attach(pid: u32, functions: &[&str]) -> Self {
        let (session, finished) = Self::try_attach(pid, functions, "count,wall");
        finished.expect(0);
        session
    }

    /// Attaches, and returns the finished command whether or not it succeeded.
    pub fn try_attach(pid: u32, functions: &[&str], metrics: &str) -> (Self, Finished) {
        let session = Self::of(pid);
        let finished = Run::ipath(["attach", &session.pid, "--keep", "--no-tui"])
            .args(["--duration", "1ms", "-m", metrics])
            .args(functions.iter().flat_map(|f| ["-f", f]))
            .run();
        (session, finished)
    }

    /// Instruments more functions. Returns the ended command.
    pub fn add(&self, functions: &[&str]) -> Finished {
        self.change("add", functions)
    }

    /// Removes functions. Returns the ended command.
    pub fn remove(&self, functions: &[&str]) -> Finished {
        self.change("remove", functions)
    }

    /// Adds metrics to functions; functions that are not instrumented yet are added with them.
    pub fn add_metrics(&self, functions: &[&str], metrics: &str) -> Finished {
        self.remeasure("add", functions, metrics)
    }

    /// Removes metrics from functions.
    pub fn remove_metrics(&self, functions: &[&str], metrics: &str) -> Finished {
        self.remeasure("remove", functions, metrics)
    }

    fn remeasure(&self, command: &str, functions: &[&str], metrics: &str) -> Finished {
        Run::ipath([command, &self.pid, "-m", metrics])
            .args(functions.iter().flat_map(|f| ["-f", f]))
            .run()
    }

    fn change(&self, command: &str, functions: &[&str]) -> Finished {
        Run::ipath([command, &self.pid])
            .args(functions.iter().flat_map(|f| ["-f", f]))
            .run()
    }

    /// The profile up to now.
    ///
    /// # Panics
    /// If the command fails.
    pub fn snapshot(&self) -> Profile {
        let file = self.file();
        let run = Run::ipath(["snapshot", &self.pid, "-o"]);
        run.arg(&file).run().expect(0);
        Profile::read(&file)
    }

    /// Detaches, and returns the final profile.
    ///
    /// # Panics
    /// If the command fails.
    pub fn detach(self) -> Profile {
        let file = self.file();
        let run = Run::ipath(["detach", &self.pid, "-o"]);
        run.arg(&file).run().expect(0);
        Profile::read(&file)
    }

    fn file(&self) -> PathBuf {
        self.scratch.file("p.json")
    }
}

/// The numbers by name in the lines `calls NAME N`, in which a program reports how often it called
/// its functions.
///
/// # Panics
/// If there are none.
pub fn own_counts(stdout: &str) -> BTreeMap<String, u64> {
    let counts = counts_of(stdout, "calls");
    assert!(!counts.is_empty(), "no line `calls NAME N` in:\n{stdout}");
    counts
}

/// The numbers by name in the lines `WHAT NAME N` of a program that keeps its own counts; empty if
/// there are none.
pub fn counts_of(stdout: &str, what: &str) -> BTreeMap<String, u64> {
    let line = |line: &str| {
        let (word, rest) = line.split_once(' ')?;
        let (name, count) = rest.split_once(' ')?;
        (word == what).then_some((name.to_owned(), count.parse().ok()?))
    };
    stdout.lines().filter_map(line).collect()
}

/// Checks that `attach` repeatedly refuses a program, with one line that contains `why`, and leaves
/// it unchanged.
///
/// # Panics
/// If it does not.
pub fn assert_attach_refused(target: &mut Target, function: &str, why: &str) {
    let pid = target.pid().to_string();
    let clean = ProcessState::of(target.pid());
    for _ in 0..5 {
        let refused = Run::ipath(["attach", &pid, "--no-tui", "--duration", "1ms"])
            .args(["-f", function])
            .run();
        assert_eq!(refused.code(), 1, "{}", refused.report());
        let said = refused.expect_error();
        assert!(said.contains(why), "{said}");
        assert!(target.poll().is_none(), "{}", target.report());
        clean.assert_unchanged(target.pid());
    }
}

/// The lines of `ipath status -v` about one process; `None` if it has no session.
///
/// # Panics
/// If the command fails, or complains about that process.
pub fn listed(pid: u32) -> Option<String> {
    listed_in(&Run::ipath(["status", "-v"]).run().expect(0), pid)
}

/// The lines about one process in the output of a finished `status`: the process's line and those
/// of its functions. `None` if it is not listed. The output may list processes of other tests.
///
/// # Panics
/// If it complains about that process, by its pid or by the name of its segment.
pub fn listed_in(status: &Finished, pid: u32) -> Option<String> {
    for name in [format!("status {pid}:"), format!("ipath-{pid}-")] {
        assert!(!status.stderr.contains(&name), "{}", status.report());
    }
    let head = format!("{pid}  ");
    let mut lines = status.stdout.lines().skip_while(|l| !l.starts_with(&head));
    let first = lines.next()?;
    let functions = lines.take_while(|l| l.starts_with(' '));
    Some(
        [first]
            .into_iter()
            .chain(functions)
            .collect::<Vec<_>>()
            .join("\n"),
    )
}
