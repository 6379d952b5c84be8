//! The state of a process that a session must leave unchanged.

use nix::sys::signal::Signal;
use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::fs::{self, File};
use std::hash::{Hash, Hasher};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// Everything in a process that instrumentation could change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessState {
    /// The lines of /proc/PID/maps.
    pub maps: Vec<String>,
    /// A hash of the bytes of each readable and executable mapping, by its line in `maps`.
    pub text: BTreeMap<String, u64>,
    /// The target of each open descriptor, by its number.
    pub descriptors: BTreeMap<String, String>,
    /// Signal masks and dispositions, number of threads, tracer: lines of /proc/PID/status.
    pub status: Lines,
    /// The lines on signal masks and tracer in the status of each thread, by its id.
    pub threads: BTreeMap<String, Lines>,
    /// The names of the files in /dev/shm that contain the process id.
    pub shared: Vec<String>,
    /// A signal that the process receives repeatedly, which may be pending at any time.
    recurring: Option<Signal>,
}

/// Lines of a status by their names.
type Lines = BTreeMap<String, String>;

const OF_PROCESS: &[&str] = &[
    "SigBlk",
    "SigIgn",
    "SigCgt",
    "SigPnd",
    "ShdPnd",
    "Threads",
    "TracerPid",
    "NoNewPrivs",
    "Seccomp",
];
const OF_THREAD: &[&str] = &["SigBlk", "SigPnd", "TracerPid"];

impl ProcessState {
    /// The current state. The process keeps running, so its own changes show up as differences.
    ///
    /// # Panics
    /// If the process cannot be read.
    pub fn of(pid: u32) -> Self {
        let read = |file: &str| {
            let path = format!("/proc/{pid}/{file}");
            // Names may contain any bytes.
            let bytes = fs::read(&path).unwrap_or_else(|e| panic!("read {path}: {e}"));
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let threads = threads_made(pid);
        let maps: Vec<String> = read("maps").lines().map(str::to_owned).collect();
        let memory = File::open(format!("/proc/{pid}/mem"))
            .unwrap_or_else(|e| panic!("open /proc/{pid}/mem: {e}"));
        let text = maps
            .iter()
            .filter(|line| line.split(' ').nth(1).is_some_and(|p| p.starts_with("r-x")))
            .map(|line| (line.clone(), hash(&memory, line)))
            .collect();
        let descriptors = list(&format!("/proc/{pid}/fd"))
            .into_iter()
            .filter_map(|fd| {
                let to = fs::read_link(format!("/proc/{pid}/fd/{fd}")).ok()?;
                Some((fd, to.to_string_lossy().into_owned()))
            })
            .collect();
        let shared = Self::shared_of(pid);
        Self {
            maps,
            text,
            descriptors,
            status: Self::of_process(&read("status"), threads.get(&pid.to_string())),
            threads,
            shared,
            recurring: None,
        }
    }

    /// The lines on the process, with the blocked signals of its first thread, which is the one
    /// that the status of a process describes.
    fn of_process(status: &str, first: Option<&Lines>) -> Lines {
        let mut found = lines(status, OF_PROCESS);
        if let Some(blocked) = first.and_then(|lines| lines.get("SigBlk")) {
            found.insert("SigBlk".into(), blocked.clone());
        }
        found
    }

    /// The state at a moment when the program is not handling `signal`, which it receives
    /// repeatedly. The signal may still be pending; it always is while the program waits for a
    /// processor.
    ///
    /// # Panics
    /// If there is no such moment for 20 seconds, or the process cannot be read.
    pub fn between(pid: u32, signal: Signal) -> Self {
        const LIMIT: Duration = Duration::from_secs(20);
        let end = Instant::now() + LIMIT;
        let blocks = |lines: &Lines| {
            lines
                .get("SigBlk")
                .is_some_and(|set| number(set) & bit(signal) != 0)
        };
        loop {
            let mut state = Self::of(pid);
            if !state.threads.values().chain([&state.status]).any(blocks) {
                state.recurring = Some(signal);
                return state;
            }
            assert!(Instant::now() < end, "{pid} always handles {signal}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The sorted names of the files in /dev/shm that contain this pid as a whole number.
    pub fn shared_of(pid: u32) -> Vec<String> {
        let files = list("/dev/shm").into_iter();
        let names_it = |f: &String| {
            f.split(|c: char| !c.is_ascii_digit())
                .any(|n| n == pid.to_string())
        };
        files.filter(names_it).collect()
    }

    /// The lines of a process's maps that belong to a session: its segment, and code without a
    /// file. They are read through any thread that still has maps.
    ///
    /// # Panics
    /// If the process has ended.
    pub fn session_in(pid: u32) -> Vec<String> {
        const TRIES: u32 = 2000;
        let living_maps = || {
            let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
            let maps = |task: fs::DirEntry| fs::read_to_string(task.path().join("maps")).ok();
            let mut found = tasks.filter_map(|task| maps(task.ok()?));
            found.find(|maps| !maps.is_empty())
        };
        // The thread may have ended in the meantime.
        let again = || std::thread::sleep(std::time::Duration::from_millis(1));
        let maps = (0..TRIES).find_map(|_| {
            living_maps().or_else(|| {
                again();
                None
            })
        });
        let is_own = |line: &&str| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let is_code = fields[1].contains('x') && fields.len() < 6;
            is_code || line.contains("/dev/shm/ipath") || line.contains("memfd:ipath")
        };
        let maps = maps.expect("a thread lives");
        maps.lines().filter(is_own).map(str::to_owned).collect()
    }

    /// One line for each difference from `self` to the later state `after`; empty if there is none.
    pub fn differences(&self, after: &Self) -> Vec<String> {
        let mut found = Vec::new();
        for line in self.maps.iter().filter(|l| !after.maps.contains(l)) {
            found.push(format!("mapping gone: {line}"));
        }
        for line in after.maps.iter().filter(|l| !self.maps.contains(l)) {
            found.push(format!("mapping new: {line}"));
        }
        for (line, hash) in &self.text {
            if after.text.get(line).is_some_and(|other| other != hash) {
                found.push(format!("text changed: {line}"));
            }
        }
        changes(
            "descriptor",
            &self.descriptors,
            &after.descriptors,
            &mut found,
        );
        let lines = |lines: &BTreeMap<_, _>| self.without_recurring(lines);
        let (old, new) = (lines(&self.status), lines(&after.status));
        changes("status", &old, &new, &mut found);
        let threads = |state: &Self| -> BTreeMap<_, _> {
            let of = |(tid, its): (&String, _)| (tid.clone(), lines(its));
            state.threads.iter().map(of).collect()
        };
        changes("thread", &threads(self), &threads(after), &mut found);
        if self.shared != after.shared {
            found.push(format!(
                "/dev/shm: {:?}, was {:?}",
                after.shared, self.shared
            ));
        }
        found
    }

    /// The lines of a status without the recurring signal in the sets of pending signals.
    fn without_recurring(&self, lines: &Lines) -> Lines {
        let mut lines = lines.clone();
        for (name, set) in &mut lines {
            if let (Some(signal), "SigPnd" | "ShdPnd") = (self.recurring, name.as_str()) {
                *set = format!("{:016x}", number(set) & !bit(signal));
            }
        }
        lines
    }

    /// Checks that the process is unchanged.
    ///
    /// # Panics
    /// With one line for each lasting difference.
    pub fn assert_unchanged(&self, pid: u32) {
        let found = self.lasting_differences(pid);
        assert!(
            found.is_empty(),
            "process {pid} is not what it was:\n{}",
            found.join("\n")
        );
    }

    /// The differences from `self` to the current state. Waits until there is none, for up to 30
    /// seconds, and returns those that remain.
    ///
    /// A thread that worked for a killed command gets its signal mask back once it has run again.
    pub fn lasting_differences(&self, pid: u32) -> Vec<String> {
        const BACK: Duration = Duration::from_secs(30);
        let end = Instant::now() + BACK;
        let mut found = self.differences(&Self::of(pid));
        while !found.is_empty() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
            found = self.differences(&Self::of(pid));
        }
        found
    }
}

/// The bit of a signal in a signal set of /proc/PID/status.
fn bit(signal: Signal) -> u64 {
    1 << (signal as i32 - 1)
}

/// A signal set of /proc/PID/status as a number.
fn number(set: &str) -> u64 {
    u64::from_str_radix(set, 16).unwrap_or_else(|e| panic!("{set}: {e}"))
}

/// Adds one line to `found` for each key whose value differs, or that only one side has.
fn changes<V: std::fmt::Debug + PartialEq>(
    what: &str,
    before: &BTreeMap<String, V>,
    after: &BTreeMap<String, V>,
    found: &mut Vec<String>,
) {
    let mut keys: Vec<_> = before.keys().chain(after.keys()).collect();
    keys.sort();
    keys.dedup();
    for key in keys {
        let (old, new) = (before.get(key), after.get(key));
        if old != new {
            found.push(format!("{what} {key}: {new:?}, was {old:?}"));
        }
    }
}

/// The values of the lines of /proc/PID/status with these names, by name.
fn lines(status: &str, names: &[&str]) -> Lines {
    let fields = status.lines().filter_map(|line| line.split_once(":\t"));
    fields
        .filter(|(name, _)| names.contains(name))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// The sorted names of a folder's entries; empty if it cannot be read.
fn list(dir: &str) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// A hash of the memory of one mapping, given by its line of /proc/PID/maps.
fn hash(memory: &File, line: &str) -> u64 {
    let range = line.split(' ').next().and_then(|r| r.split_once('-'));
    let parse = |s| u64::from_str_radix(s, 16).expect("a maps line starts with a range");
    let (start, end) = range.map(|(a, b)| (parse(a), parse(b))).expect("a range");
    let mut bytes = vec![0; (end - start) as usize];
    memory
        .read_exact_at(&mut bytes, start)
        .unwrap_or_else(|e| panic!("read {line}: {e}"));
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

/// The status lines of a thread. Among the blocked signals are those that it awaits: the kernel
/// unblocks them for the time of the wait (kernel/signal.c, do_sigtimedwait), so without them the
/// set would depend on whether the thread waits already. `None` if the thread has ended.
fn of_thread(pid: u32, tid: &str) -> Option<Lines> {
    let read = |file: &str| {
        let bytes = fs::read(format!("/proc/{pid}/task/{tid}/{file}")).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    };
    loop {
        let before = awaited(pid, &read("syscall").unwrap_or_default());
        let mut found = lines(&read("status")?, OF_THREAD);
        if before != awaited(pid, &read("syscall").unwrap_or_default()) {
            continue;
        }
        if let (Some(awaited), Some(blocked)) = (before, found.get_mut("SigBlk")) {
            *blocked = format!("{:016x}", number(blocked) | awaited);
        }
        return Some(found);
    }
}

/// The set of signals that a thread awaits by rt_sigtimedwait(2), by its line in
/// /proc/PID/task/TID/syscall.
fn awaited(pid: u32, call: &str) -> Option<u64> {
    let mut fields = call.split_whitespace();
    let number: i64 = fields.next()?.parse().ok()?;
    if number != nix::libc::SYS_rt_sigtimedwait {
        return None;
    }
    let set = u64::from_str_radix(fields.next()?.strip_prefix("0x")?, 16).ok()?;
    let memory = File::open(format!("/proc/{pid}/mem")).ok()?;
    let mut bytes = [0; 8];
    memory.read_exact_at(&mut bytes, set).ok()?;
    Some(u64::from_le_bytes(bytes))
}

/// The status lines of each thread by its id, once all threads are fully started, or after 3
/// seconds. The C library creates threads with all signals blocked; they unblock them when they
/// start.
fn threads_made(pid: u32) -> BTreeMap<String, Lines> {
    /// All signals except SIGKILL and SIGSTOP.
    const ALL: &str = "fffffffffffbfeff";
    /// Some programs block all signals permanently.
    const LIMIT: Duration = Duration::from_secs(3);
    let end = Instant::now() + LIMIT;
    loop {
        let of = |tid: String| {
            // A thread that has ended since the listing is skipped.
            let found = of_thread(pid, &tid)?;
            Some((tid, found))
        };
        let listed = list(&format!("/proc/{pid}/task")).into_iter();
        let threads: BTreeMap<_, _> = listed.filter_map(of).collect();
        let is_being_made = |said: &Lines| said.get("SigBlk").is_some_and(|b| b == ALL);
        if !threads.values().any(is_being_made) || Instant::now() > end {
            return threads;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
