//! Targets that know which of their calls must be counted: programs that include
//! `tests/programs/epoch.h`.

use crate::command::{Finished, Run};
use crate::place::Scratch;
use crate::profile::Profile;
use crate::snapshot::ProcessState;
use crate::target::{Target, nice};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

/// The bit of an epoch that makes the target start no call while the epoch is odd.
const HELD: u64 = 1 << 32;

/// A target of this kind and the calls of it that have been counted.
pub struct Counted {
    /// The target.
    pub target: Target,
    /// The counter file, through which the target reads the epoch.
    epoch: File,
    /// The current epoch, with the bit [`HELD`].
    now: u64,
    scratch: Scratch,
    /// The thread whose /proc files are read: not the first one if that has ended.
    seen: u32,
    before: ProcessState,
    /// The number of calls in profiles: made freely, and made while the target held calls back.
    calls: [u64; 2],
    /// In nanoseconds.
    longest_stop: u64,
}

impl Counted {
    /// Starts a program with these arguments and, as the last one, the counter file. Waits until it
    /// is ready.
    pub fn start<S: AsRef<OsStr>>(
        program: impl AsRef<OsStr>,
        args: impl IntoIterator<Item = S>,
    ) -> Self {
        let scratch = Scratch::new("counted");
        let counter = scratch.file("counter");
        // It is changed many times.
        let mut command = nice(program);
        command.args(args).arg(&counter);
        let target = Target::spawn(command).await_output("ready");
        let epoch = File::options().write(true).open(&counter);
        let seen = living(target.pid());
        Self {
            before: ProcessState::of(seen),
            target,
            epoch: epoch.expect("the target's file"),
            now: 0,
            scratch,
            seen,
            calls: [0; 2],
            longest_stop: 0,
        }
    }

    /// Makes the target start no call during later changes. Its counts are then exact except for
    /// calls that had already begun.
    pub fn hold_calls(&mut self) {
        self.now |= HELD;
    }

    /// Checks that the process is in the same state as at the start.
    ///
    /// # Panics
    /// With the differences.
    pub fn assert_unchanged(&self) {
        self.before.assert_unchanged(self.seen);
    }

    /// Like [`Self::assert_unchanged`], for a program that creates threads and processes or
    /// receives signals, so that its signal masks change. Compares code, descriptors, dispositions
    /// and shared memory.
    ///
    /// # Panics
    /// With the differences.
    pub fn assert_code_unchanged(&self) {
        let now = ProcessState::of(self.seen);
        assert_eq!(now.text, self.before.text, "executable mappings");
        assert_eq!(now.descriptors, self.before.descriptors);
        assert_eq!(now.shared, self.before.shared);
        for set in ["SigCgt", "SigIgn"] {
            assert_eq!(now.status[set], self.before.status[set], "{set}");
        }
    }

    /// Runs `ipath` during an epoch in which calls may or may not be counted. PID in the arguments
    /// stands for the target's pid.
    ///
    /// # Panics
    /// If the command fails, or the target has ended.
    pub fn change(&mut self, arguments: &[&str]) -> Finished {
        self.next();
        let finished = self.ipath(arguments).expect(0);
        assert!(self.target.poll().is_none(), "{}", self.target.report());
        self.next();
        finished
    }

    /// Runs `ipath`; PID in the arguments stands for the target's pid.
    pub fn ipath(&self, arguments: &[&str]) -> Finished {
        let pid = self.target.pid().to_string();
        let arguments = arguments.iter().map(|&a| if a == "PID" { &pid } else { a });
        Run::ipath(arguments).run()
    }

    /// Writes the next epoch to the counter file.
    fn next(&mut self) {
        self.now += 1;
        let written = self.epoch.write_all_at(&self.now.to_le_bytes(), 0);
        written.expect("write the counter file");
    }

    /// Creates a session that counts `work`, and leaves it running.
    pub fn attach(&mut self) -> Finished {
        let arguments = "attach PID -f work --keep --no-tui --duration 1ms";
        self.change(&arguments.split(' ').collect::<Vec<_>>())
    }

    /// Removes `work` from the session.
    pub fn remove(&mut self) {
        self.change(&["remove", "PID", "-f", "work"]);
    }

    /// Adds `work` to the session again.
    pub fn add(&mut self) {
        self.change(&["add", "PID", "-f", "work"]);
    }

    /// The profile of the session up to now.
    pub fn snapshot(&self) -> Profile {
        let file = self.scratch.file("snapshot.json");
        self.ipath(&["snapshot", "PID", "-o", &file.display().to_string()])
            .expect(0);
        Profile::read(&file)
    }

    /// Ends the session, adds its calls of `work` to the sums, and returns its profile.
    ///
    /// # Panics
    /// If the session lost calls.
    pub fn detach(&mut self) -> Profile {
        let file = self.scratch.file("p.json");
        self.change(&["detach", "PID", "-o", &file.display().to_string()]);
        let profile = Profile::read(&file);
        profile.assert_lossless();
        self.calls[usize::from(self.now >= HELD)] += profile.calls("work");
        self.longest_stop = self.longest_stop.max(profile.stops().0);
        profile
    }

    /// Ends the target. Checks that ipath counted at least the calls that the target is sure of,
    /// and at most those plus the unsure ones. Returns the target's last line.
    ///
    /// # Panics
    /// With the numbers, if they do not agree.
    pub fn finish(self) -> String {
        let line = self.target.finish("ok sure ");
        let [open, held] = self.calls;
        let longest = self.longest_stop / 1000;
        println!("{line}; counted {open}, held {held}; longest stop {longest} us");
        let numbers: Vec<u64> = line.split(' ').filter_map(|w| w.parse().ok()).collect();
        for (index, counted) in self.calls.into_iter().enumerate() {
            let (sure, unsure) = (numbers[2 * index], numbers[2 * index + 1]);
            assert!(
                sure <= counted && counted <= sure + unsure,
                "{counted} calls counted of {sure} and {unsure} unsure: {line}"
            );
        }
        assert!(open > 0 || held > 0, "no call was counted: {line}");
        line
    }
}

/// A live thread of the process: the first one if it is alive. Ids wrap around to the lowest free
/// one, so a thread that was created later may have a lower id.
fn living(pid: u32) -> u32 {
    let lives = |&t: &u32| state_of(t) != 'Z';
    if lives(&pid) {
        return pid;
    }
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("a process of ours");
    let mut ids = threads.filter_map(|t| t.ok()?.file_name().to_str()?.parse().ok());
    ids.find(lives).expect("a living thread")
}

/// The state letter of a process or thread (proc(5)), or Z if it does not exist.
pub fn state_of(id: u32) -> char {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    let rest = stat.rsplit_once(") ").map_or("Z", |(_, rest)| rest);
    rest.chars().next().unwrap_or('Z')
}
