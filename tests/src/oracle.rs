//! Every call of a function with its call path, found by gdb alone: a breakpoint on the function's
//! first instruction, and gdb's own unwinder.

use crate::command::{Finished, Run};
use crate::place::{Scratch, workspace};
use crate::program::Program;
use crate::symbols::{Site, sites};
use serde::Deserialize;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// One caller: the module's file name, and the return address minus 1 as an address in that file.
pub type Frame = (String, u64);

/// The calls of one function by one thread on one call path.
#[derive(Debug, Deserialize)]
pub struct GdbPath {
    /// The index of the function in [`Oracle::sites`].
    pub site: usize,
    /// gdb's thread number.
    pub thread: u32,
    /// True if gdb reached the outermost frame.
    pub complete: bool,
    /// The callers, from the function's direct caller outwards.
    pub stack: Vec<Frame>,
    /// The number of calls.
    pub hits: u64,
}

/// The end of the program, as gdb saw it.
#[derive(Debug, Deserialize, PartialEq, Eq)]
pub struct Ending {
    /// Its exit status; `None` if a signal ended it.
    pub code: Option<i32>,
    /// The signal that ended it, if one did.
    pub signal: Option<i32>,
}

#[derive(Deserialize)]
struct Answer {
    paths: Vec<GdbPath>,
    ending: Ending,
    errors: Vec<String>,
}

/// The calls that gdb found.
#[derive(Debug)]
pub struct Oracle {
    /// The functions with a breakpoint.
    pub sites: Vec<Site>,
    /// Their calls by site, thread and path.
    pub paths: Vec<GdbPath>,
    /// The end of the program.
    pub ending: Ending,
    /// The program's standard output.
    pub stdout: String,
    /// The program's standard error.
    pub stderr: String,
    /// The duration of the run.
    pub elapsed: Duration,
}

/// The calls of `function` in the program's own file, as pairs of a stack and its number of calls.
/// A stack appears once per thread.
///
/// # Panics
/// If gdb fails, or the program has no such function.
pub fn gdb_paths(program: &Path, args: &[&str], function: &str) -> Vec<(Vec<Frame>, u64)> {
    let program = Program::new(program, args.iter().copied());
    let oracle = run(&program, &sites(&program.path, function));
    oracle
        .paths
        .into_iter()
        .map(|path| (path.stack, path.hits))
        .collect()
}

/// Runs the program under gdb with a breakpoint on each site.
///
/// # Panics
/// If gdb fails or does not end within 240 seconds.
pub fn run(program: &Program, sites: &[Site]) -> Oracle {
    finish(program, Job::new(program, sites))
}

/// Like [`run`], but only counts calls, which is many times faster; all stacks are empty and all
/// threads 0.
pub fn counts(program: &Program, sites: &[Site]) -> Oracle {
    finish(program, Job::with(program, sites, false))
}

/// Runs gdb for this job, and returns its result.
fn finish(program: &Program, job: Job) -> Oracle {
    let (name, arguments) = job.command();
    let run = Run::new(name)
        .args(arguments)
        .env("IPATH_ORACLE", job.file());
    let finished = program
        .environment(run)
        .limit(Duration::from_secs(240))
        .run();
    job.result(&finished)
}

/// A run under gdb that another program starts, such as mpirun.
pub struct Job {
    scratch: Scratch,
    sites: Vec<Site>,
}

impl Job {
    /// Writes the file with the job, which is removed with the value.
    pub fn new(program: &Program, sites: &[Site]) -> Self {
        Self::with(program, sites, true)
    }

    fn with(program: &Program, sites: &[Site], has_paths: bool) -> Self {
        let scratch = Scratch::new("oracle");
        let sites_json: Vec<_> = sites
            .iter()
            .map(|s| serde_json::json!({"module": s.module, "address": s.address}))
            .collect();
        let job = serde_json::json!({
            "program": program.path,
            "args": program.args,
            "stdin": "/dev/null",
            "stdout": scratch.file("stdout"),
            "stderr": scratch.file("stderr"),
            "sites": sites_json,
            "paths": has_paths,
            "result": scratch.file("result"),
        });
        fs::write(scratch.file("job"), job.to_string()).expect("write in an own folder");
        Self {
            scratch,
            sites: sites.to_vec(),
        }
    }

    /// The path of the job's file, for the environment variable `IPATH_ORACLE`.
    pub fn file(&self) -> PathBuf {
        self.scratch.file("job")
    }

    /// The command that runs gdb, and its arguments.
    pub fn command(&self) -> (&'static str, Vec<String>) {
        let script = workspace()
            .join("tests/oracle/paths.py")
            .display()
            .to_string();
        (
            "gdb",
            vec![
                "-batch".into(),
                "-q".into(),
                "-nx".into(),
                "-x".into(),
                script,
            ],
        )
    }

    /// The result of the run.
    ///
    /// # Panics
    /// If gdb failed, or could not follow some path.
    pub fn result(&self, finished: &Finished) -> Oracle {
        let text = fs::read_to_string(self.scratch.file("result"))
            .unwrap_or_else(|e| panic!("gdb left no result: {e}\n{}", finished.report()));
        let answer: Answer = serde_json::from_str(&text)
            .unwrap_or_else(|e| panic!("gdb's result: {e}\n{}", finished.report()));
        assert!(
            answer.errors.is_empty(),
            "gdb: {:?}\n{}",
            answer.errors,
            finished.report()
        );
        let read = |name| fs::read_to_string(self.scratch.file(name)).unwrap_or_default();
        Oracle {
            sites: self.sites.clone(),
            paths: answer.paths,
            ending: answer.ending,
            stdout: read("stdout"),
            stderr: read("stderr"),
            elapsed: finished.elapsed,
        }
    }
}

impl Oracle {
    /// The number of calls of all sites.
    pub fn hits(&self) -> u64 {
        self.paths.iter().map(|path| path.hits).sum()
    }

    /// One line: calls, distinct stacks, greatest depth, time.
    pub fn summary(&self) -> String {
        let stacks: std::collections::BTreeSet<_> = self
            .paths
            .iter()
            .map(|path| (path.site, &path.stack))
            .collect();
        let depth = self
            .paths
            .iter()
            .map(|path| path.stack.len())
            .max()
            .unwrap_or(0);
        let (hits, stacks) = (self.hits(), stacks.len());
        format!(
            "gdb: {hits} calls on {stacks} paths, up to {depth} frames, {:?}",
            self.elapsed
        )
    }

    /// Checks that gdb did not disturb the program and lost no path.
    ///
    /// # Panics
    /// If output or status differ from those of a plain run, or gdb could not walk some stack to
    /// its end.
    pub fn assert_like(&self, plain: &Finished) {
        assert_eq!(
            (&self.stdout, &self.stderr),
            (&plain.stdout, &plain.stderr),
            "under gdb"
        );
        let code = self.ending.code.or(self.ending.signal.map(|s| 128 + s));
        assert_eq!(code, Some(plain.code()), "exit status under gdb");
        let lost: Vec<_> = self.paths.iter().filter(|path| !path.complete).collect();
        assert!(lost.is_empty(), "gdb could not follow {lost:?}");
    }
}
