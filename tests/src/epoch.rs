//! Targets that know for themselves which of their calls had to be counted: those that include
//! `tests/programs/epoch.h`.

use crate::command::{Finished, Run};
use crate::place::Scratch;
use crate::profile::Profile;
use crate::snapshot::ProcessState;
use crate::target::{Target, nice};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

/// From this epoch on the target begins no call while it is odd.
const HELD: u64 = 1 << 32;

/// Such a target, and what of its calls has been counted.
pub struct Counted {
    /// The target.
    pub target: Target,
    epoch: File,
    now: u64,
    scratch: Scratch,
    /// The thread through which the process is seen: not the first where that has ended.
    seen: u32,
    before: ProcessState,
    /// Calls in profiles, by whether the target held its calls back.
    calls: [u64; 2],
    longest_stop: u64,
}

impl Counted {
    /// Starts a program whose last argument is the counter file.
    pub fn start<S: AsRef<OsStr>>(
        program: impl AsRef<OsStr>,
        args: impl IntoIterator<Item = S>,
    ) -> Self {
        let scratch = Scratch::new("counted");
        let counter = scratch.file("counter");
        // It is changed again and again.
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

    /// From now on the target begins no call while the instrumentation is changed: what it counts
    /// then is exact but for calls that had begun.
    pub fn hold_calls(&mut self) {
        self.now |= HELD;
    }

    /// Checks that the process is as it was at the start.
    ///
    /// # Panics
    /// With what is different.
    pub fn assert_unchanged(&self) {
        self.before.assert_unchanged(self.seen);
    }

    /// The same for a program that makes threads and processes, or has signals on their way, so that
    /// what it blocks changes: code, descriptors, dispositions, shared memory.
    ///
    /// # Panics
    /// With what is different.
    pub fn assert_code_unchanged(&self) {
        let now = ProcessState::of(self.seen);
        assert_eq!(now.text, self.before.text, "executable mappings");
        assert_eq!(now.descriptors, self.before.descriptors);
        assert_eq!(now.shared, self.before.shared);
        for set in ["SigCgt", "SigIgn"] {
            assert_eq!(now.status[set], self.before.status[set], "{set}");
        }
    }

    /// Runs `ipath` with PID standing for the target's, while calls are unsure.
    ///
    /// # Panics
    /// When it fails, or the target has ended.
    pub fn change(&mut self, arguments: &[&str]) -> Finished {
        self.next();
        let finished = self.ipath(arguments).expect(0);
        assert!(self.target.poll().is_none(), "{}", self.target.report());
        self.next();
        finished
    }

    /// Runs `ipath` with PID standing for the target's.
    pub fn ipath(&self, arguments: &[&str]) -> Finished {
        let pid = self.target.pid().to_string();
        let arguments = arguments.iter().map(|&a| if a == "PID" { &pid } else { a });
        Run::ipath(arguments).run()
    }

    fn next(&mut self) {
        self.now += 1;
        let written = self.epoch.write_all_at(&self.now.to_le_bytes(), 0);
        written.expect("write the counter file");
    }

    /// Makes a session that counts `work`, and leaves it.
    pub fn attach(&mut self) -> Finished {
        let arguments = "attach PID -f work --keep --no-tui --duration 1ms";
        self.change(&arguments.split(' ').collect::<Vec<_>>())
    }

    /// Takes `work` out of the session.
    pub fn remove(&mut self) {
        self.change(&["remove", "PID", "-f", "work"]);
    }

    /// Takes `work` in again.
    pub fn add(&mut self) {
        self.change(&["add", "PID", "-f", "work"]);
    }

    /// The profile so far.
    pub fn snapshot(&self) -> Profile {
        let file = self.scratch.file("snapshot.json");
        self.ipath(&["snapshot", "PID", "-o", &file.display().to_string()])
            .expect(0);
        Profile::read(&file)
    }

    /// Ends the session and adds up its calls.
    ///
    /// # Panics
    /// When it has not seen some.
    pub fn detach(&mut self) -> Profile {
        let file = self.scratch.file("p.json");
        self.change(&["detach", "PID", "-o", &file.display().to_string()]);
        let profile = Profile::read(&file);
        profile.assert_lossless();
        self.calls[usize::from(self.now >= HELD)] += profile.calls("work");
        self.longest_stop = self.longest_stop.max(profile.stops().0);
        profile
    }

    /// Ends the target; checks that ipath has counted at least the calls the target is sure of,
    /// and at most those and the unsure ones. Returns the target's last line.
    ///
    /// # Panics
    /// With the numbers, where they do not agree.
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

/// A thread of the process that has not ended: the first one where it lives. Ids start again from
/// the lowest free one, so that a thread made later may have a lower one.
fn living(pid: u32) -> u32 {
    let lives = |&t: &u32| state_of(t) != 'Z';
    if lives(&pid) {
        return pid;
    }
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("a process of ours");
    let mut ids = threads.filter_map(|t| t.ok()?.file_name().to_str()?.parse().ok());
    ids.find(lives).expect("a living thread")
}

/// The state letter of a process or thread, as proc(5) has it; Z where it is gone.
pub fn state_of(id: u32) -> char {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    let rest = stat.rsplit_once(") ").map_or("Z", |(_, rest)| rest);
    rest.chars().next().unwrap_or('Z')
}
