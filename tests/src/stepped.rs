//! Transfers of control inside functions, counted by single steps (PTRACE_SINGLESTEP).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

/// The transfers of one program: from an instruction to the next one that ran, by their addresses.
pub type Transfers = HashMap<(u64, u64), u64>;

/// Runs a program of one thread to its end, instruction by instruction. Returns the transfers in
/// and out of the code `of` the file `file`, with link-time addresses, and what the program
/// printed.
///
/// `of` has the link-time ranges of each wanted function by its key. Addresses elsewhere are 0.
///
/// # Panics
/// If the program does not end with status 0.
pub fn transfers(
    program: &Command,
    file: &str,
    of: &BTreeMap<usize, Vec<Range<u64>>>,
) -> (BTreeMap<usize, Transfers>, String) {
    let mut found: BTreeMap<usize, Transfers> = BTreeMap::new();
    let text = visit(program, file, of, |own, _, transfer| {
        let transfers = found.entry(own).or_default();
        *transfers.entry(transfer).or_default() += 1;
    });
    (found, text)
}

/// As [`transfers`], but calls `see` for each transfer: with the key of the function, with the
/// number of calls from wanted functions that its activation is in, and with the two addresses.
/// Returns what the program printed.
///
/// # Panics
/// If the program does not end with status 0.
pub fn visit(
    program: &Command,
    file: &str,
    of: &BTreeMap<usize, Vec<Range<u64>>>,
    see: impl FnMut(usize, usize, (u64, u64)),
) -> String {
    let child = start(program);
    let base = run_to(Pid::from_raw(child.id() as i32), file, of);
    step_through(child, base, &Functions::new(of), see)
}

/// Starts a program that stops at its first instruction.
fn start(program: &Command) -> Child {
    let mut command = Command::new(program.get_program());
    command.args(program.get_args()).stdout(Stdio::piped());
    let set = program.get_envs();
    command
        .env_clear()
        .envs(set.filter_map(|(name, value)| Some((name, value?))));
    // SAFETY: only async-signal-safe calls between fork and exec.
    unsafe {
        command.pre_exec(|| Ok(ptrace::traceme()?));
    }
    command.spawn().expect("it starts")
}

/// The ranges of functions, by their starts.
struct Functions(BTreeMap<u64, (u64, usize)>);

impl Functions {
    fn new(of: &BTreeMap<usize, Vec<Range<u64>>>) -> Self {
        let all = of.iter().flat_map(|(&key, ranges)| {
            let ranges = ranges.iter();
            ranges.map(move |range| (range.start, (range.end, key)))
        });
        Self(all.collect())
    }

    /// The key of the function at `at`.
    fn key(&self, at: u64) -> Option<usize> {
        let (_, &(end, key)) = self.0.range(..=at).next_back()?;
        (at < end).then_some(key)
    }
}

/// Runs a stopped program to its end.
fn step_through(
    child: Child,
    base: u64,
    functions: &Functions,
    mut see: impl FnMut(usize, usize, (u64, u64)),
) -> String {
    let pid = Pid::from_raw(child.id() as i32);
    let mut before: Option<u64> = Some(0);
    let mut before_sp = None;
    let key = |at: u64| functions.key(at);
    let mut calls: Vec<Call> = Vec::new();
    let mut signal = None;
    loop {
        let registers = ptrace::getregs(pid).expect("stopped");
        let (pc, sp) = (registers.rip, registers.rsp);
        let at = pc.wrapping_sub(base);
        // A call returns to the instruction after it. A call that was left does not.
        while calls.last().is_some_and(|call: &Call| {
            let is_left = call.sp == sp && call.next != at && key(at).is_some();
            call.sp < sp || is_left
        }) {
            calls.pop();
        }
        if let Some(call) = calls.pop_if(|call| call.sp == sp && call.next == at) {
            // A wanted function has returned to itself or to another one.
            if let Some((from, own)) = before.and_then(|from| Some((from, key(from)?))) {
                see(own, calls.len() + 1, (from, 0));
            }
            before = Some(call.at);
        } else if let Some((from, from_sp)) = before.zip(before_sp)
            && key(from).is_some()
            && from_sp == sp + 8
            && let Some(next) = return_address(pid, base, from, sp)
        {
            calls.push(Call {
                at: from,
                next,
                sp: from_sp,
            });
            before = Some(0);
        }
        if let Some(from) = before.filter(|&from| from != at) {
            let keys = [key(from), key(at)];
            for own in keys.into_iter().flatten().collect::<BTreeSet<_>>() {
                let inside = |at: u64| if key(at) == Some(own) { at } else { 0 };
                see(own, calls.len(), (inside(from), inside(at)));
            }
        }
        (before, before_sp) = (Some(at), Some(sp));
        ptrace::step(pid, signal).expect("stopped");
        signal = match waitpid(pid, None).expect("a child") {
            WaitStatus::Exited(_, status) => {
                assert_eq!(status, 0, "it ends well");
                break;
            }
            WaitStatus::Stopped(_, Signal::SIGTRAP) => None,
            WaitStatus::Stopped(_, other) => Some(other),
            other => panic!("{other:?}"),
        };
    }
    let output = child.wait_with_output().map(|output| output.stdout);
    String::from_utf8_lossy(&output.unwrap_or_default()).into_owned()
}

/// A call from inside a wanted function: its address, that of the next instruction, and the stack
/// pointer before it.
struct Call {
    at: u64,
    next: u64,
    sp: u64,
}

/// The address after a call from `at` that has just been made: the word that it has pushed to `sp`.
/// `None` if another instruction was executed.
pub(crate) fn return_address(pid: Pid, base: u64, at: u64, sp: u64) -> Option<u64> {
    const LONGEST: u64 = 8;
    let word = ptrace::read(pid, sp as ptrace::AddressType).ok()?;
    let next = (word as u64).wrapping_sub(base);
    (at < next && next <= at + LONGEST).then_some(next)
}

/// Runs a new process until it reaches one of the wanted functions. Returns the load address of the
/// file.
fn run_to(pid: Pid, file: &str, of: &BTreeMap<usize, Vec<Range<u64>>>) -> u64 {
    const BREAKPOINT: i64 = 0xcc;
    let await_trap = || {
        let status = waitpid(pid, None).expect("a child");
        assert_eq!(status, WaitStatus::Stopped(pid, Signal::SIGTRAP));
    };
    await_trap();
    let base = base_of(pid, file).expect("mapped");
    let starts = of.values().flatten().map(|range| base + range.start);
    let original: Vec<(u64, i64)> = starts
        .map(|at| {
            let word = ptrace::read(pid, at as ptrace::AddressType).expect("mapped");
            let patched = word & !0xff | BREAKPOINT;
            ptrace::write(pid, at as ptrace::AddressType, patched).expect("mapped");
            (at, word)
        })
        .collect();
    ptrace::cont(pid, None).expect("stopped");
    await_trap();
    for &(at, word) in &original {
        let now = ptrace::read(pid, at as ptrace::AddressType).expect("mapped");
        let restored = now & !0xff | word & 0xff;
        ptrace::write(pid, at as ptrace::AddressType, restored).expect("mapped");
    }
    let mut registers = ptrace::getregs(pid).expect("stopped");
    registers.rip -= 1;
    ptrace::setregs(pid, registers).expect("stopped");
    base
}

/// The load address of a file in a process. `None` while the file is not mapped.
pub(crate) fn base_of(pid: Pid, file: &str) -> Option<u64> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    let line = maps.lines().find(|line| line.ends_with(file))?;
    // A position-dependent program (ET_EXEC) has its link-time addresses.
    const ET_EXEC: u8 = 2;
    let bytes = std::fs::read(line.split_whitespace().nth(5)?).ok()?;
    if bytes.get(16) == Some(&ET_EXEC) {
        return Some(0);
    }
    u64::from_str_radix(line.split('-').next()?, 16).ok()
}
