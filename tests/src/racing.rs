//! Commands that run concurrently, in random order. The seed reproduces a failed round.

use crate::apart;
use crate::command::Finished;
use crate::place::ipath;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The number of rounds of a race: `IPATH_TEST_ROUNDS`, or `usual` if it is not set.
///
/// # Panics
/// If the variable is not a number.
pub fn rounds(usual: usize) -> usize {
    let given = std::env::var("IPATH_TEST_ROUNDS").ok();
    given.map_or(usual, |n| n.parse().expect("a number of rounds"))
}

/// Selects every `apart`-th of many similar steps for a run. Which step is the first depends on the
/// day.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// The distance between two steps of the sample.
    apart: u64,
    /// Days since 1970-01-01, or the seed.
    day: u64,
}

impl Sample {
    /// The sample of today, or of the day in `IPATH_TEST_SEED`. With `IPATH_TEST_ROUNDS` it
    /// contains every step. Prints the day and the distance.
    ///
    /// # Panics
    /// If the seed is not a number.
    pub fn every(apart: u64) -> Self {
        let given = std::env::var("IPATH_TEST_SEED").ok();
        let today = || {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            now.map_or(0, |d| d.as_secs() / (24 * 3600))
        };
        let day = given.map_or_else(today, |n| n.parse().expect("a seed"));
        let is_whole = std::env::var_os("IPATH_TEST_ROUNDS").is_some();
        let apart = if is_whole { 1 } else { apart };
        println!("IPATH_TEST_SEED={day}: every step of {apart}");
        Self { apart, day }
    }

    /// The numbers of the steps in the sample, ascending without end. The first step of all is 1.
    pub fn steps(self) -> impl Iterator<Item = u64> {
        (1 + self.day % self.apart..).step_by(self.apart as usize)
    }

    /// The number, from 0 to `count` - 1, of the way in which `step` is tested. In `apart * count`
    /// days each step is tested in each of the `count` ways.
    pub fn way(self, step: u64, count: u64) -> u64 {
        (step / self.apart + self.day / self.apart) % count
    }
}

/// The sorted paths in /dev/shm of ipath's segments for a process; empty if there are none.
///
/// # Panics
/// If /dev/shm cannot be read.
pub fn segment_names(pid: u32) -> Vec<PathBuf> {
    let entries = std::fs::read_dir("/dev/shm").expect("readable").flatten();
    let name = format!("ipath-{pid}-");
    let mut found: Vec<PathBuf> = entries
        .filter(|e| e.file_name().to_string_lossy().starts_with(&name))
        .map(|e| e.path())
        .collect();
    found.sort();
    found
}

/// Removes the segments of [`segment_names`]. A later process with the same id would have two
/// sessions.
pub fn remove_segments(pid: u32) {
    for path in segment_names(pid) {
        let _ = std::fs::remove_file(path);
    }
}

/// A command that runs concurrently with others, in its own process group.
#[derive(Debug)]
pub struct Running(Child);

impl Running {
    /// Starts ipath.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start<S: AsRef<OsStr>>(arguments: &[S]) -> Self {
        Self::spawn(Command::new(ipath()), arguments)
    }

    /// Starts this command with these arguments.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn spawn<S: AsRef<OsStr>>(mut command: Command, arguments: &[S]) -> Self {
        command.args(arguments).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        Self(apart::spawn(&mut command).expect("started"))
    }

    /// The process id of the command.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Sends a signal to the command, not to its group. Ignores errors.
    pub fn signal(&self, signal: Signal) {
        let _ = kill(Pid::from_raw(self.0.id() as i32), signal);
    }

    /// True if the command has ended. Reaps it.
    ///
    /// # Panics
    /// If waitpid(2) fails.
    pub fn has_ended(&mut self) -> bool {
        self.0.try_wait().expect("an own child").is_some()
    }

    /// Waits for the end of the command. Returns its exit status, or -1 if a signal ended it, and
    /// its standard error.
    ///
    /// # Panics
    /// If it runs for more than two minutes; it is killed then.
    pub fn finish(mut self) -> (i32, String) {
        let end = Instant::now() + Duration::from_secs(120);
        while !self.has_ended() {
            if Instant::now() > end {
                let _ = self.0.kill();
                let output = self.0.wait_with_output();
                let said = output.map(|o| String::from_utf8_lossy(&o.stderr).into_owned());
                panic!("a command has not ended within two minutes: {said:?}");
            }
            sleep(Duration::from_millis(1));
        }
        let output = self.0.wait_with_output().expect("an own child");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code().unwrap_or(-1), said)
    }
}

/// True if a command succeeded (`code` is 0), or failed because the session was not in the expected
/// state: its standard error `said` contains one of the known messages or of `also`.
pub fn is_done_or_excused(code: i32, said: &str, also: &[&str]) -> bool {
    const KNOWN: [&str; 4] = [
        "no session",
        "has a session",
        "no instrumented function",
        "is changing the session",
    ];
    code == 0 || KNOWN.iter().chain(also).any(|text| said.contains(text))
}

/// Checks [`is_done_or_excused`] for a finished command.
///
/// # Panics
/// If it failed for another reason; `what` is part of the message.
pub fn assert_done_or_excused(finished: &Finished, also: &[&str], what: &str) {
    let is_so = is_done_or_excused(finished.code(), &finished.stderr, also);
    assert!(is_so, "{}\n{what}", finished.report());
}

/// Random numbers from a seed (xorshift64*, Vigna 2016).
#[derive(Debug)]
pub struct Chance(u64);

impl Chance {
    /// The sequence of numbers of this seed. An even seed gives that of the next odd one.
    pub fn seeded(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// Seeded by `IPATH_TEST_SEED`, else by the clock; prints the seed.
    ///
    /// # Panics
    /// If the variable is not a number.
    pub fn new() -> Self {
        let given = std::env::var("IPATH_TEST_SEED").ok();
        let own = || {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            now.map_or(1, |d| d.as_nanos() as u64)
        };
        let seed = given.map_or_else(own, |n| n.parse().expect("a seed"));
        println!("IPATH_TEST_SEED={seed}");
        Self(seed | 1)
    }

    /// A random number from 0 to `end` - 1.
    ///
    /// # Panics
    /// If `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16) % end
    }

    /// A random element of `choices`.
    ///
    /// # Panics
    /// If there is none.
    pub fn of<'t, T>(&mut self, choices: &'t [T]) -> &'t T {
        &choices[self.below(choices.len() as u64) as usize]
    }
}

impl Default for Chance {
    fn default() -> Self {
        Self::new()
    }
}
