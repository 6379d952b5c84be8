//! Single steps through functions of programs and libraries. The rest of the program runs freely,
//! so that a long program can be followed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::instrument::libraries;
use crate::stepped::{base_of, return_address};
use crate::symbols::sites;

const BREAKPOINT: u8 = 0xcc;

/// A function to step through.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// The name of its file.
    pub module: String,
    /// The link-time addresses of its blocks.
    pub ranges: Vec<Range<u64>>,
    /// The link-time addresses at which control may arrive from elsewhere.
    pub entries: Vec<u64>,
}

/// The way in which a program is run.
#[derive(Debug, Clone, Copy)]
pub struct Way<'e> {
    /// The whole environment.
    pub environment: &'e [(&'e str, &'e str)],
    /// True if addresses are random.
    pub random: bool,
    /// The file that the program writes to.
    pub output: &'e Path,
}

/// A call from inside a wanted function.
struct Call {
    /// The absolute address of the call.
    at: u64,
    /// The absolute address of the next instruction.
    next: u64,
    /// The stack pointer before the call.
    sp: u64,
}

/// A process whose first thread is stepped through. It is killed when dropped.
struct Stepped {
    child: Child,
    pid: Pid,
    memory: File,
    /// The original bytes at breakpoints.
    armed: HashMap<u64, u8>,
    end: Instant,
}

/// The function at an absolute address: its index, and the load address of its file.
type Found = (usize, u64);

/// The blocks of functions by absolute addresses.
struct Functions(BTreeMap<u64, (u64, Found)>);

impl Functions {
    fn at(&self, at: u64) -> Option<Found> {
        let (_, &(end, found)) = self.0.range(..=at).next_back()?;
        (at < end).then_some(found)
    }
}

/// Runs a program to its end. Calls `see` for each transfer of control in its first thread in or
/// out of a wanted function: with the index of the function, with the number of calls from wanted
/// functions that its activation is in, and with the two link-time addresses. Other threads must
/// not run wanted functions. Addresses elsewhere are 0. Returns the exit status.
///
/// A program with a loader is followed from the time on at which its libraries are ready, as the
/// loader tells debuggers, before their constructors.
///
/// # Panics
/// If the program does not end by itself within the limit.
pub fn visit_where(
    program: &Command,
    way: Way<'_>,
    wanted: &[Wanted],
    limit: Duration,
    see: impl FnMut(usize, usize, (u64, u64)),
) -> i32 {
    let mut stepped = Stepped::start(program, way, limit);
    stepped.run_to_loaded(program);
    let functions = stepped.place(wanted);
    stepped.step_through(&functions, see)
}

impl Stepped {
    fn start(program: &Command, way: Way<'_>, limit: Duration) -> Self {
        let mut command = Command::new(program.get_program());
        command.args(program.get_args()).env_clear();
        command.envs(way.environment.iter().copied());
        let output = File::create(way.output).expect("create in an own folder");
        let also = output.try_clone().expect("a file");
        command.stdin(Stdio::null()).stdout(output).stderr(also);
        // SAFETY: only async-signal-safe calls between fork and exec.
        unsafe {
            command.pre_exec(move || {
                if !way.random {
                    libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong);
                }
                Ok(ptrace::traceme()?)
            });
        }
        let child = command.spawn().expect("it starts");
        let pid = Pid::from_raw(child.id() as i32);
        let stopped = WaitStatus::Stopped(pid, Signal::SIGTRAP);
        assert_eq!(waitpid(pid, None), Ok(stopped));
        let memory = format!("/proc/{pid}/mem");
        let memory = OpenOptions::new().read(true).write(true).open(memory);
        Self {
            child,
            pid,
            memory: memory.expect("a traced child"),
            armed: HashMap::new(),
            end: Instant::now() + limit,
        }
    }

    fn write(&self, at: u64, byte: u8) {
        self.memory.write_all_at(&[byte], at).expect("mapped");
    }

    fn arm(&mut self, at: u64) {
        if self.armed.contains_key(&at) {
            return;
        }
        let mut byte = [0];
        self.memory.read_exact_at(&mut byte, at).expect("mapped");
        self.armed.insert(at, byte[0]);
        self.write(at, BREAKPOINT);
    }

    fn disarm(&mut self, at: u64) {
        if let Some(byte) = self.armed.remove(&at) {
            self.write(at, byte);
        }
    }

    /// Runs to the second report of the loader to debuggers. A program without a loader stays at
    /// its first instruction.
    fn run_to_loaded(&mut self, program: &Command) {
        let mut headers = Command::new("readelf");
        headers.arg("-lW").arg(program.get_program());
        let headers = headers.output().expect("readelf").stdout;
        if !String::from_utf8_lossy(&headers).contains("INTERP") {
            return;
        }
        let loader = &libraries(program.get_program().as_ref(), &["ld-linux"])[0];
        let site = &sites(loader, "_dl_debug_state")[0];
        let base = base_of(self.pid, &site.module).expect("mapped");
        for _ in 0..2 {
            self.arm(base + site.address);
            assert_eq!(self.run(None), Ok(base + site.address));
            self.disarm(base + site.address);
            assert_eq!(self.step(base + site.address, None), Ok(()));
        }
    }

    /// Sets breakpoints at the entries of functions.
    fn place(&mut self, wanted: &[Wanted]) -> Functions {
        let mut functions = BTreeMap::new();
        let mut bases: BTreeMap<&str, u64> = BTreeMap::new();
        for (index, own) in wanted.iter().enumerate() {
            let base = *bases.entry(&own.module).or_insert_with(|| {
                let name = format!("/{}", own.module);
                base_of(self.pid, &name).unwrap_or_else(|| panic!("{name} is mapped"))
            });
            for range in &own.ranges {
                let place = (base + range.end, (index, base));
                let other = functions.insert(base + range.start, place);
                assert!(other.is_none(), "{range:#x?} is in several functions");
            }
            own.entries.iter().for_each(|&at| self.arm(base + at));
        }
        Functions(functions)
    }

    /// Awaits a stop by a trap. An error is the signal of another stop, or the exit status.
    fn wait(&mut self) -> Result<(), Result<Signal, i32>> {
        // A program without a breakpoint ahead might run forever.
        while Instant::now() < self.end {
            match waitpid(self.pid, Some(WaitPidFlag::WNOHANG)).expect("a child") {
                WaitStatus::StillAlive => std::thread::yield_now(),
                WaitStatus::Stopped(_, Signal::SIGTRAP) => return Ok(()),
                WaitStatus::Stopped(_, other) => return Err(Ok(other)),
                WaitStatus::Exited(_, status) => return Err(Err(status)),
                other => panic!("{other:?}"),
            }
        }
        panic!("it has not ended in time");
    }

    /// Runs to a breakpoint, and returns its address.
    fn run(&mut self, signal: Option<Signal>) -> Result<u64, Result<Signal, i32>> {
        ptrace::cont(self.pid, signal).expect("stopped");
        self.wait()?;
        let mut registers = ptrace::getregs(self.pid).expect("stopped");
        registers.rip -= 1;
        assert!(self.armed.contains_key(&registers.rip), "{registers:#x?}");
        ptrace::setregs(self.pid, registers).expect("stopped");
        Ok(registers.rip)
    }

    /// Executes the instruction at `at`.
    fn step(&mut self, at: u64, signal: Option<Signal>) -> Result<(), Result<Signal, i32>> {
        let original = self.armed.get(&at).copied();
        if let Some(byte) = original {
            self.write(at, byte);
        }
        ptrace::step(self.pid, signal).expect("stopped");
        let stopped = self.wait();
        if original.is_some() && !matches!(stopped, Err(Err(_))) {
            self.write(at, BREAKPOINT);
        }
        stopped
    }

    /// Runs to the end.
    fn step_through(
        &mut self,
        functions: &Functions,
        mut see: impl FnMut(usize, usize, (u64, u64)),
    ) -> i32 {
        let mut before = None;
        let mut calls: Vec<Call> = Vec::new();
        let mut signal = None;
        loop {
            let registers = ptrace::getregs(self.pid).expect("stopped");
            let (at, sp) = (registers.rip, registers.rsp);
            before = self.arrive(functions, &mut calls, before, (at, sp), &mut see);
            let stopped = match functions.at(at) {
                Some(_) => self.step(at, signal),
                None => {
                    before = None;
                    self.run(signal).map(drop)
                }
            };
            signal = match stopped {
                Ok(()) => None,
                Err(Ok(signal)) => Some(signal),
                Err(Err(status)) => return status,
            };
        }
    }

    /// Reports how control has come to `at`, from the instruction and the stack pointer `before`,
    /// or from elsewhere. Returns what is before the next instruction.
    fn arrive(
        &mut self,
        functions: &Functions,
        calls: &mut Vec<Call>,
        before: Option<(u64, u64)>,
        (at, sp): (u64, u64),
        see: &mut impl FnMut(usize, usize, (u64, u64)),
    ) -> Option<(u64, u64)> {
        let mut before_at = before.map(|(at, _)| at);
        // A call returns to the instruction after it. A call that was left does not.
        while calls.last().is_some_and(|call| {
            let is_left = call.sp == sp && call.next != at && functions.at(at).is_some();
            call.sp < sp || is_left
        }) {
            calls.pop();
        }
        if let Some(call) = calls.pop_if(|call| call.sp == sp && call.next == at) {
            // A wanted function has returned to itself or to another one.
            if let Some(from) = before_at
                && let Some((own, base)) = functions.at(from)
            {
                see(own, calls.len() + 1, (from - base, 0));
            }
            before_at = Some(call.at);
        } else if let Some((from, from_sp)) = before
            && let Some((_, base)) = functions.at(from)
            && from_sp == sp + 8
            && let Some(next) = return_address(self.pid, base, from - base, sp)
        {
            let next = base + next;
            calls.push(Call {
                at: from,
                next,
                sp: from_sp,
            });
            self.arm(next);
            before_at = None;
        }
        if before_at != Some(at) {
            let places = [
                before_at.and_then(|from| functions.at(from)),
                functions.at(at),
            ];
            for (own, base) in places.into_iter().flatten().collect::<BTreeSet<_>>() {
                let inside = |at: Option<u64>| {
                    let found = at.filter(|&at| functions.at(at) == Some((own, base)));
                    found.map_or(0, |at| at - base)
                };
                see(own, calls.len(), (inside(before_at), inside(Some(at))));
            }
        }
        Some((at, sp))
    }
}

impl Drop for Stepped {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
