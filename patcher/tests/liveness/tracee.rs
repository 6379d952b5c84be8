//! A program that is executed instruction by instruction, with changes of its registers.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use libc::user_regs_struct;

/// The registers and flags to overwrite before an instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// A bit for each general-purpose register, by its number.
    pub registers: u16,
    /// True for the status flags.
    pub flags: bool,
}

/// An instruction: the file that is mapped, and the address in it.
pub type Place = (PathBuf, u64);

/// The result of a run.
#[derive(Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The text that the program has written.
    pub output: String,
    pub end: End,
}

/// The end of a run.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    Exited(i32),
    Signal(i32),
    /// A system call that the program does not make by itself.
    ForbiddenCall(u64),
    TooLong,
}

/// A run, and the instructions that it has executed.
pub struct Run {
    pub outcome: Outcome,
    pub executed: HashSet<Place>,
    /// The number of instructions executed.
    pub steps: usize,
    /// The number of instructions before which something was overwritten.
    pub changed: usize,
}

/// The carry, parity, adjust, zero, sign and overflow flags.
const STATUS: u64 = 0x8d5;
const BREAKPOINT: u8 = 0xcc;
const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// The maximum run time, in seconds.
const LIMIT: u32 = 120;

/// The system calls that the program makes: a wrong register must not do harm.
const ALLOWED: [i64; 9] = [
    libc::SYS_write,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_brk,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_futex,
    libc::SYS_getrandom,
];

struct Tracee {
    child: Child,
    pid: i32,
}

impl Drop for Tracee {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Tracee {
    /// Starts `program`, which is stopped before its first instruction.
    fn start(program: &Path) -> Self {
        let mut command = Command::new(program);
        command
            .arg("traced")
            .env_clear()
            .env("LD_BIND_NOW", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        // SAFETY: both calls are async-signal-safe and take no pointer that is read.
        unsafe {
            command.pre_exec(|| {
                libc::alarm(LIMIT);
                match libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) {
                    0 => Ok(()),
                    _ => Err(std::io::Error::last_os_error()),
                }
            });
        }
        let child = command.spawn().expect("the program starts");
        let pid = child.id() as i32;
        let tracee = Self { child, pid };
        assert_eq!(tracee.wait(), Err(libc::SIGTRAP), "stopped at its start");
        tracee
    }

    /// Waits for a stop. The result is the status of the program at its end, otherwise the signal.
    fn wait(&self) -> Result<End, i32> {
        let mut status = 0;
        // SAFETY: `status` is valid for writes.
        let pid = unsafe { libc::waitpid(self.pid, &raw mut status, 0) };
        assert_eq!(pid, self.pid, "{}", std::io::Error::last_os_error());
        if libc::WIFEXITED(status) {
            return Ok(End::Exited(libc::WEXITSTATUS(status)));
        }
        if libc::WIFSIGNALED(status) {
            return Ok(End::Signal(libc::WTERMSIG(status)));
        }
        Err(libc::WSTOPSIG(status))
    }

    fn resume(&self, request: libc::c_uint) {
        // SAFETY: neither request takes a pointer.
        let done = unsafe { libc::ptrace(request, self.pid, 0, 0) };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    }

    fn registers(&self) -> user_regs_struct {
        // SAFETY: all zeroes are valid, and the request writes one such structure.
        unsafe {
            let mut registers: user_regs_struct = std::mem::zeroed();
            let done = libc::ptrace(libc::PTRACE_GETREGS, self.pid, 0, &raw mut registers);
            assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
            registers
        }
    }

    fn set_registers(&self, registers: &user_regs_struct) {
        // SAFETY: the request reads one such structure.
        let done = unsafe { libc::ptrace(libc::PTRACE_SETREGS, self.pid, 0, registers) };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    }

    /// Eight bytes at `at`; zeroes where nothing is mapped.
    fn bytes(&self, at: u64) -> [u8; 8] {
        // SAFETY: the request reads memory of the other process only.
        let word = unsafe { libc::ptrace(libc::PTRACE_PEEKTEXT, self.pid, at, 0) };
        match word {
            -1 => [0; 8],
            word => word.to_le_bytes(),
        }
    }

    /// The mapped files, by the end of their mappings: the start and the path.
    fn files(&self) -> BTreeMap<u64, (u64, PathBuf)> {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.pid)).expect("maps");
        let mut starts: HashMap<PathBuf, u64> = HashMap::new();
        let mut files = BTreeMap::new();
        for line in maps.lines() {
            let (Some(path), Some((range, _))) = (line.find('/'), line.split_once(' ')) else {
                continue;
            };
            let path = PathBuf::from(&line[path..]);
            let (start, end) = range.split_once('-').expect("a range");
            let number = |text| u64::from_str_radix(text, 16).expect("an address");
            let start = *starts.entry(path.clone()).or_insert(number(start));
            files.insert(number(end), (start, path));
        }
        files
    }
}

/// The register with this number.
fn register(registers: &mut user_regs_struct, number: usize) -> &mut u64 {
    let r = registers;
    let all = [
        &mut r.rax, &mut r.rcx, &mut r.rdx, &mut r.rbx, &mut r.rsp, &mut r.rbp, &mut r.rsi,
        &mut r.rdi, &mut r.r8, &mut r.r9, &mut r.r10, &mut r.r11, &mut r.r12, &mut r.r13,
        &mut r.r14, &mut r.r15,
    ];
    all.into_iter().nth(number).expect("a register")
}

fn overwrite(registers: &mut user_regs_struct, claim: Claim, garbage: u64) {
    for number in (0..16).filter(|number| claim.registers & (1 << number) != 0) {
        *register(registers, number) = garbage.wrapping_add(number as u64);
    }
    if claim.flags {
        registers.eflags ^= STATUS;
    }
}

/// Runs `program` between its two breakpoints in steps, at most `most` of them. Before each
/// instruction it overwrites the registers that `claims` has, with numbers near `garbage`.
pub fn run(program: &Path, claims: &HashMap<Place, Claim>, garbage: u64, most: usize) -> Run {
    let mut tracee = Tracee::start(program);
    tracee.resume(libc::PTRACE_CONT);
    assert_eq!(tracee.wait(), Err(libc::SIGTRAP), "the first breakpoint");
    let files = tracee.files();
    let place = |pc: u64| {
        let (_, (start, path)) = files.range(pc + 1..).next()?;
        let at = pc.checked_sub(*start)?;
        Some((path.clone(), at))
    };
    let mut known: HashMap<u64, (Claim, [u8; 8])> = HashMap::new();
    let (mut steps, mut changed) = (0, 0);
    let end = loop {
        let mut registers = tracee.registers();
        let pc = registers.rip;
        let (claim, bytes) = *known.entry(pc).or_insert_with(|| {
            let claim = place(pc).and_then(|place| claims.get(&place));
            (claim.copied().unwrap_or_default(), tracee.bytes(pc))
        });
        if bytes[0] == BREAKPOINT {
            tracee.resume(libc::PTRACE_CONT);
            assert_eq!(tracee.wait(), Err(libc::SIGTRAP), "the second breakpoint");
            tracee.resume(libc::PTRACE_CONT);
            break tracee.wait().unwrap_or_else(End::Signal);
        }
        if claim != Claim::default() {
            overwrite(&mut registers, claim, garbage);
            tracee.set_registers(&registers);
            changed += 1;
        }
        let is_output = registers.rax as i64 != libc::SYS_write || registers.rdi == 1;
        let is_allowed = ALLOWED.contains(&(registers.rax as i64)) && is_output;
        if bytes[..2] == SYSCALL && !is_allowed {
            break End::ForbiddenCall(registers.rax);
        }
        if steps == most {
            break End::TooLong;
        }
        tracee.resume(libc::PTRACE_SINGLESTEP);
        match tracee.wait() {
            Ok(end) => break end,
            Err(libc::SIGTRAP) => steps += 1,
            Err(signal) => break End::Signal(signal),
        }
    };
    let _ = tracee.child.kill();
    let mut output = Vec::new();
    let pipe = tracee.child.stdout.as_mut().expect("a pipe");
    pipe.read_to_end(&mut output).expect("output");
    Run {
        outcome: Outcome {
            output: String::from_utf8_lossy(&output).into_owned(),
            end,
        },
        executed: known.keys().filter_map(|&pc| place(pc)).collect(),
        steps,
        changed,
    }
}
