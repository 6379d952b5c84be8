//! A program with its arguments, run plainly or under a command that takes a program.

use crate::command::{Finished, Run};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A program to run plainly, under gdb and under ipath.
#[derive(Debug, Clone)]
pub struct Program {
    /// The executable.
    pub path: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Environment variables that it needs.
    pub env: Vec<(String, String)>,
}

impl Program {
    /// A program with arguments.
    pub fn new<S: Into<String>>(path: &Path, args: impl IntoIterator<Item = S>) -> Self {
        let args = args.into_iter().map(Into::into).collect();
        Self {
            path: path.to_path_buf(),
            args,
            env: Vec::new(),
        }
    }

    /// Adds one environment variable.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The same program, with the runtime set to repeat every remembered walk. A difference ends
    /// the program.
    pub fn verified(&self) -> Self {
        self.clone().env("IPATH_VERIFY_WALKS", "1")
    }

    /// Runs it without ipath.
    pub fn plain(&self) -> Finished {
        self.environment(Run::new(&self.path).args(&self.args))
            .run()
    }

    /// Runs it from its first instruction under `ipath run`, which writes the profile to `profile`.
    pub fn under_ipath(&self, patterns: &[&str], metrics: &str, profile: &Path) -> Finished {
        self.under_ipath_as(ipath_arguments(patterns, metrics, profile))
    }

    /// Like [`Self::under_ipath`], with explicit arguments of ipath, which end in `--`.
    pub fn under_ipath_as(&self, arguments: Vec<String>) -> Finished {
        let run = Run::ipath(arguments).arg(&self.path);
        self.environment(run.args(&self.args))
            .limit(Duration::from_secs(120))
            .run()
    }

    /// Sets the program's environment variables in a run.
    pub(crate) fn environment(&self, run: Run) -> Run {
        self.env
            .iter()
            .fold(run, |run, (name, value)| run.env(name, value))
    }
}

/// `run -f PATTERN… -m METRICS … -o PROFILE --`. The interval is so long that the summary is
/// printed once, after the program's own output.
pub fn ipath_arguments(patterns: &[&str], metrics: &str, profile: &Path) -> Vec<String> {
    let mut args = vec!["run".to_owned()];
    for pattern in patterns {
        args.extend(["-f".to_owned(), (*pattern).to_owned()]);
    }
    let profile = profile.display().to_string();
    args.extend(
        [
            "-m",
            metrics,
            "--no-tui",
            "--interval",
            "10m",
            "-o",
            &profile,
            "--",
        ]
        .map(str::to_owned),
    );
    args
}
