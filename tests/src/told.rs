//! A program that loads, calls and unloads libraries as it is told.

use crate::command::{Finished, Run};
use crate::compile::program_with;
use crate::place::ipath;
use crate::session::own_counts;
use crate::target::Target;
use nix::sys::signal::Signal;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The longest time that a step may take.
pub const LIMIT: Duration = Duration::from_secs(60);

/// A library whose function `later` the program calls.
pub fn library() -> PathBuf {
    program_with("told_lib.c", &["-shared", "-fPIC"])
}

/// Like [`library`], with different code of the same length.
pub fn other() -> PathBuf {
    program_with("told_lib.c", &["-shared", "-fPIC", "-DOTHER"])
}

/// A program that takes one step at a time, on request.
pub struct Told {
    /// The process.
    pub target: Target,
    done: usize,
}

impl Told {
    /// Starts the program and waits until it is ready for the first of these steps (`told.c` lists
    /// them).
    pub fn to(steps: &[String]) -> Self {
        let program = program_with("told.c", &["-rdynamic"]);
        let target = Target::start(program, steps).await_output("ready");
        Self { target, done: 0 }
    }

    /// Lets it take the next step.
    ///
    /// # Panics
    /// If the step is not taken within [`LIMIT`].
    pub fn step(&mut self) {
        self.done += 1;
        let line = format!("done {}\n", self.done);
        self.target.signal(Signal::SIGUSR1);
        let is_done = |target: &Target| target.stdout().contains(&line);
        self.target.until(LIMIT, "taken its step", is_done);
    }

    /// Lets it take this many steps.
    ///
    /// # Panics
    /// If one is not taken within [`LIMIT`].
    pub fn steps(&mut self, steps: usize) {
        (0..steps).for_each(|_| self.step());
    }

    /// Its process id, as text.
    pub fn pid(&self) -> String {
        self.target.pid().to_string()
    }

    /// Runs ipath's command `arguments[0]` on the process, with the other arguments after its id.
    pub fn on(&self, arguments: &[&str]) -> Finished {
        Run::ipath([arguments[0], &self.pid()])
            .args(&arguments[1..])
            .run()
    }

    /// Ends the program, and returns how often it called `later`.
    ///
    /// # Panics
    /// If it fails.
    pub fn end(mut self) -> u64 {
        self.target.signal(Signal::SIGTERM);
        let status = self.target.wait(LIMIT);
        assert!(status.success(), "{status}: {}", self.target.report());
        own_counts(&self.target.stdout())["later"]
    }

    /// Starts `ipath top`, which watches the existing session until the program ends and writes the
    /// profile to `file`. Returns once it has printed a summary.
    pub fn looked_at(&self, file: &Path) -> Target {
        let mut command = Command::new(ipath());
        command
            .args(["top", &self.pid(), "--no-tui", "-o"])
            .arg(file);
        Target::spawn(command).await_output("in all")
    }

    /// Starts `ipath attach` with these options, which measures until a signal stops it and writes
    /// the profile to `file`.
    pub fn watched(&self, options: &[&str], file: &Path) -> Target {
        let mut command = Command::new(ipath());
        command.args(["attach", &self.pid(), "--no-tui", "--interval", "50ms"]);
        command.args(options).arg("-o").arg(file);
        Target::spawn(command)
    }
}
