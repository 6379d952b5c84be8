//! Commands that run at the same time, in orders drawn by chance: a round that fails can be drawn again by its seed.

use crate::apart;
use crate::command::Finished;
use crate::place::ipath;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Rounds of a race: as many as `IPATH_TEST_ROUNDS` says, for long series by hand.
///
/// # Panics
/// When that is no number.
pub fn rounds(usual: usize) -> usize {
    let given = std::env::var("IPATH_TEST_ROUNDS").ok();
    given.map_or(usual, |n| n.parse().expect("a number of rounds"))
}

/// Selects every `apart`-th of many similar steps for a run. The first one changes from day to day.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    apart: u64,
    day: u64,
}

impl Sample {
    /// The sample of today, or of the day in `IPATH_TEST_SEED`. With `IPATH_TEST_ROUNDS` it
    /// contains every step.
    ///
    /// # Panics
    /// When the seed is no number.
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

    /// The steps of the sample, from 1 on.
    pub fn steps(self) -> impl Iterator<Item = u64> {
        (1 + self.day % self.apart..).step_by(self.apart as usize)
    }

    /// The one of `count` ways in which a step is tested. In `apart * count` days each step is
    /// tested in each way.
    pub fn way(self, step: u64, count: u64) -> u64 {
        (step / self.apart + self.day / self.apart) % count
    }
}

/// The names of segments that stand for a process.
///
/// # Panics
/// When /dev/shm cannot be read.
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

/// Takes these names away: a later process of the same id would have two sessions.
pub fn remove_segments(pid: u32) {
    for path in segment_names(pid) {
        let _ = std::fs::remove_file(path);
    }
}

/// A command that runs on while others do, in a process group of its own.
#[derive(Debug)]
pub struct Running(Child);

impl Running {
    /// Starts ipath.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start(arguments: &[&str]) -> Self {
        Self::spawn(Command::new(ipath()), arguments)
    }

    /// Starts this command with these arguments.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn spawn(mut command: Command, arguments: &[&str]) -> Self {
        command.args(arguments).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        Self(apart::spawn(&mut command).expect("started"))
    }

    /// Its id.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Sends it a signal; nothing where it has ended.
    pub fn signal(&self, signal: Signal) {
        let _ = kill(Pid::from_raw(self.0.id() as i32), signal);
    }

    /// Whether it has ended.
    ///
    /// # Panics
    /// When that cannot be asked.
    pub fn has_ended(&mut self) -> bool {
        self.0.try_wait().expect("an own child").is_some()
    }

    /// Its status, -1 where a signal ended it, and what it said.
    ///
    /// # Panics
    /// When it runs for more than two minutes.
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

/// Whether a command did what it was asked, or found a session that is not as it takes it to be.
pub fn is_done_or_excused(code: i32, said: &str, also: &[&str]) -> bool {
    const KNOWN: [&str; 4] = [
        "no session",
        "has a session",
        "no instrumented function",
        "is changing the session",
    ];
    code == 0 || KNOWN.iter().chain(also).any(|text| said.contains(text))
}

/// The same of one that has run alone.
///
/// # Panics
/// When it did neither.
pub fn assert_done_or_excused(finished: &Finished, also: &[&str], what: &str) {
    let is_so = is_done_or_excused(finished.code(), &finished.stderr, also);
    assert!(is_so, "{}\n{what}", finished.report());
}

/// Numbers by chance, from a seed (xorshift64*, Vigna 2016).
#[derive(Debug)]
pub struct Chance(u64);

impl Chance {
    /// The sequence of numbers of this seed.
    pub fn seeded(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// With the seed that `IPATH_TEST_SEED` gives, else one of its own, which it prints.
    ///
    /// # Panics
    /// When that is no number.
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

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16) % end
    }

    /// One of these.
    pub fn of<'t, T>(&mut self, choices: &'t [T]) -> &'t T {
        &choices[self.below(choices.len() as u64) as usize]
    }
}

impl Default for Chance {
    fn default() -> Self {
        Self::new()
    }
}
