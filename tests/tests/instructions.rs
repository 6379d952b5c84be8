//! The number of instructions per call. It is the same on every machine, so a change shows up in
//! review. The benchmark measures their time.

use ipath_tests::compile::program_with;
use ipath_tests::session::Session;
use ipath_tests::symbols::sites;
use ipath_tests::target::Target;
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use std::fs;
use std::ops::Range;
use std::path::Path;

const BARE: &[&str] = &["-nostdlib", "-static", "-no-pie", "-fno-stack-protector"];

/// The number of calls to measure: some calls have extra work to do.
const CALLS: usize = 12;

/// Instructions outside the program's own code between a function's first instruction and its
/// return, for the entry and for the exit. Counting alone needs no exit.
type Instructions = (usize, usize);

/// The executable mapping of the program itself.
fn own_code(pid: u32, program: &Path) -> Range<u64> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("it runs");
    let path = program.display().to_string();
    let own = maps
        .lines()
        .find(|line| line.contains("r-xp") && line.ends_with(&path));
    let (start, end) = own
        .and_then(|line| line.split(' ').next()?.split_once('-'))
        .expect("the program's code");
    let number = |text| u64::from_str_radix(text, 16).expect("an address");
    number(start)..number(end)
}

/// A single-stepped process.
struct Stepped(Pid);

impl Stepped {
    fn begin(pid: u32) -> Self {
        let pid = Pid::from_raw(pid as i32);
        ptrace::attach(pid).expect("nobody else traces it");
        assert_eq!(
            waitpid(pid, None),
            Ok(WaitStatus::Stopped(pid, Signal::SIGSTOP))
        );
        Self(pid)
    }

    fn pc(&self) -> u64 {
        ptrace::getregs(self.0).expect("it has stopped").rip
    }

    /// Runs one instruction, and returns the address of the next one.
    fn step(&self) -> u64 {
        ptrace::step(self.0, None).expect("it has stopped");
        assert_eq!(
            waitpid(self.0, None),
            Ok(WaitStatus::Stopped(self.0, Signal::SIGTRAP))
        );
        self.pc()
    }
}

impl Drop for Stepped {
    fn drop(&mut self) {
        let _ = ptrace::detach(self.0, None);
    }
}

/// The usual numbers of instructions for a call of `tiny` below `depth` frames, with a remembered
/// walk.
///
/// # Panics
/// If not most of the calls need the same numbers.
fn taken(depth: usize, metrics: &str) -> Instructions {
    let program = program_with("bare_calls.c", BARE);
    let target = Target::start(&program, [depth.to_string()]).await_output("ready");
    let (session, attached) = Session::try_attach(target.pid(), &["tiny"], metrics);
    attached.expect(0);
    while session.snapshot().calls("tiny") < 10_000 {}
    let own = own_code(target.pid(), &program);
    let [entry, after] = ["tiny", "after_tiny"].map(|name| sites(&program, name)[0].address);
    let stepped = Stepped::begin(target.pid());
    let mut found = Vec::new();
    for _ in 0..CALLS {
        while stepped.step() != entry {}
        let mut parts = vec![0];
        let mut pc = entry;
        while pc != after {
            let is_own = own.contains(&pc);
            match (is_own, parts.last()) {
                (false, _) => *parts.last_mut().expect("one") += 1,
                (true, Some(0)) => {}
                (true, _) => parts.push(0),
            }
            pc = stepped.step();
        }
        parts.retain(|&part| part != 0);
        assert!(matches!(parts.len(), 1 | 2), "{parts:?}");
        found.push((parts[0], parts.get(1).copied().unwrap_or(0)));
    }
    drop(stepped);
    let profile = session.detach();
    let frames: Vec<usize> = profile.paths.iter().map(|path| path.stack.len()).collect();
    assert_eq!(frames, [depth], "{metrics}");
    found.sort_unstable();
    let usual = found[CALLS / 2];
    let same = found.iter().filter(|&&one| one == usual).count();
    assert!(same > CALLS / 2, "{metrics}, depth {depth}: {found:?}");
    usual
}

/// A single-stepped call is long, so its time is counted outside the record's own buckets. Change
/// these numbers only on purpose, after looking at the results of `tests/bench/against`.
#[test]
fn what_a_call_takes() {
    const EXPECTED: [(&str, usize, Instructions); 8] = [
        ("count", 5, (137, 0)),
        ("count", 20, (194, 0)),
        ("count", 100, (574, 0)),
        ("count,wall", 5, (169, 131)),
        ("count,wall", 20, (226, 131)),
        ("count,wall", 100, (606, 131)),
        ("wall,arg1", 20, (265, 137)),
        ("count,arg1", 20, (228, 0)),
    ];
    let found = EXPECTED.map(|(metrics, depth, _)| (metrics, depth, taken(depth, metrics)));
    assert_eq!(found, EXPECTED);
}
