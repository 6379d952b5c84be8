//! The requests of ptrace(2) and waitid(2) used here. Signals are plain numbers, because real-time
//! signals have no names.

use nix::errno::Errno;
use patcher::Avma;

use super::followed;
use crate::arch::Registers;
use crate::arch::signal_frame::EXTENDED_STATE;
use crate::fault_injection::step;
use crate::process::{Tid, read_text, status_line};

// Requests of linux/ptrace.h that libc does not name.
const GETSIGMASK: libc::c_uint = 0x420a;
const SETSIGMASK: libc::c_uint = 0x420b;

/// Marks stops at system calls, to distinguish them from traps of the program. The kernel needs
/// this too: it turns a stop into a signal if the tracer ends.
const OPTIONS: usize = libc::PTRACE_O_TRACESYSGOOD as usize;
/// The status of a stop at a system call.
const CALL_STOP: i32 = libc::SIGTRAP | 0x80;
/// The event of a stop by PTRACE_INTERRUPT or a group stop.
const EVENT_STOP: i32 = 128;
/// PTRACE_O_SUSPEND_SECCOMP: the thread's filters are suspended while this tracer traces it.
const SUSPEND_SECCOMP: usize = libc::PTRACE_O_SUSPEND_SECCOMP as usize;

/// An event of a traced thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// No event yet.
    None,
    /// Stopped. True for a group stop, false for PTRACE_INTERRUPT or at the thread's start.
    Stopped(bool),
    /// Stopped at the entry or exit of a system call.
    Call,
    /// Stopped before the delivery of this signal.
    Signal(i32),
    /// Stopped after an exec. The event is the first thread's, whichever thread made the call.
    Replaced,
    /// Stopped at another event.
    Other(i32),
    /// Ended.
    Ended,
}

/// The options for tracees of the calling thread.
fn options() -> usize {
    OPTIONS | followed::options()
}

/// Makes a request of ptrace(2).
fn request(
    request: libc::c_uint,
    tid: Tid,
    address: usize,
    data: usize,
) -> Result<libc::c_long, Errno> {
    // SAFETY: callers pass the arguments of the request: numbers, or pointers to live values.
    let result = unsafe { libc::ptrace(request, tid.0, address, data) };
    if result < 0 {
        Err(Errno::last())
    } else {
        Ok(result)
    }
}

/// The address of the thread's `struct rseq` (PTRACE_GET_RSEQ_CONFIGURATION). `None` if the thread
/// has none, or if the kernel does not report it.
pub fn sequence_area(tid: Tid) -> Option<Avma> {
    // SAFETY: plain integers, for which zero is a value.
    let mut found: libc::ptrace_rseq_configuration = unsafe { std::mem::zeroed() };
    let len = size_of_val(&found);
    let to = (&raw mut found) as usize;
    request(libc::PTRACE_GET_RSEQ_CONFIGURATION, tid, len, to).ok()?;
    Some(Avma(found.rseq_abi_pointer)).filter(|at| at.0 != 0)
}

/// Starts tracing a thread without stopping it (PTRACE_SEIZE).
///
/// # Errors
/// The error of ptrace(2).
pub fn seize(tid: Tid) -> Result<(), Errno> {
    request(libc::PTRACE_SEIZE, tid, 0, options()).map(drop)?;
    step("seize");
    Ok(())
}

/// Starts tracing a thread (PTRACE_SEIZE) to observe one execve(2).
///
/// # Errors
/// The error of ptrace(2).
pub fn seize_for_exec(tid: Tid) -> Result<(), Errno> {
    let options = OPTIONS | libc::PTRACE_O_TRACEEXEC as usize;
    request(libc::PTRACE_SEIZE, tid, 0, options).map(drop)
}

/// Sets the options that [`seize`] sets, for a thread that made this process its tracer.
///
/// # Errors
/// The error of ptrace(2).
pub fn set_options(tid: Tid) -> Result<(), Errno> {
    request(libc::PTRACE_SETOPTIONS, tid, 0, options()).map(drop)
}

/// Suspends the thread's seccomp filters until [`set_options`].
///
/// # Errors
/// EPERM without CAP_SYS_ADMIN, or another error of ptrace(2).
pub fn suspend_seccomp(tid: Tid) -> Result<(), Errno> {
    request(libc::PTRACE_SETOPTIONS, tid, 0, OPTIONS | SUSPEND_SECCOMP).map(drop)
}

/// The first 32 signals pending for this thread, each with its `si_code`. They stay in the queue.
///
/// # Errors
/// The error of ptrace(2).
pub fn queued(tid: Tid) -> Result<Vec<(i32, i32)>, Errno> {
    const MAX_SIGNALS: usize = 32;
    // SAFETY: plain integers and pointers, for which zero is a value.
    let mut queued: [libc::siginfo_t; MAX_SIGNALS] = unsafe { std::mem::zeroed() };
    let arguments = libc::ptrace_peeksiginfo_args {
        off: 0,
        flags: 0,
        nr: MAX_SIGNALS as i32,
    };
    let (which, to) = (&raw const arguments as usize, &raw mut queued as usize);
    let found = request(libc::PTRACE_PEEKSIGINFO, tid, which, to)?;
    let queued = queued.iter().take(found as usize);
    Ok(queued.map(|s| (s.si_signo, s.si_code)).collect())
}

/// The signal before whose delivery the thread has stopped.
///
/// # Errors
/// The error of ptrace(2).
pub fn delivered(tid: Tid) -> Result<libc::siginfo_t, Errno> {
    // SAFETY: plain integers and pointers, for which zero is a value.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    request(libc::PTRACE_GETSIGINFO, tid, 0, &raw mut info as usize)?;
    Ok(info)
}

/// Resends a signal that was about to be delivered to the thread.
///
/// Its siginfo is kept, unless kill(2) or tgkill(2) sent it. The kernel lets no other process claim
/// these codes (`do_rt_tgsigqueueinfo`, kernel/signal.c), so such a signal then has this process as
/// its sender.
///
/// # Errors
/// ESRCH if the thread has ended, or another error of the system call.
pub fn send_again(tid: Tid, info: &libc::siginfo_t) -> Result<(), Errno> {
    let process = followed::group_of(tid).ok_or(Errno::ESRCH)?.0;
    let number = info.si_signo;
    // SAFETY: the kernel only reads through `info`.
    let sent = unsafe { libc::syscall(libc::SYS_rt_tgsigqueueinfo, process, tid.0, number, info) };
    // SAFETY: takes no pointer.
    let again = || unsafe { libc::syscall(libc::SYS_tgkill, process, tid.0, number) };
    Errno::result(sent)
        .or_else(|_| Errno::result(again()))
        .map(drop)
}

/// True if the thread has enabled system call dispatch, which can turn its calls into SIGSYS
/// (prctl(2), PR_SET_SYSCALL_USER_DISPATCH). Always false before Linux 6.4, where the kernel cannot
/// report it.
pub fn dispatches_calls(tid: Tid) -> bool {
    // include/uapi/linux/ptrace.h: mode, address of the selector, start and length of the exempt
    // range.
    const GET_SYSCALL_USER_DISPATCH_CONFIG: libc::c_uint = 0x4211;
    let mut config = [0u64; 4];
    let (len, at) = (size_of_val(&config), config.as_mut_ptr() as usize);
    let told = request(GET_SYSCALL_USER_DISPATCH_CONFIG, tid, len, at);
    told.is_ok() && config[0] != 0
}

/// Collects a stop, so that it is not reported again.
///
/// After an exec by a thread other than the first, the stop cannot be left in any other way
/// (`looks_like_a_spurious_pid`, kernel/ptrace.c). If the thread was killed meanwhile, it is no
/// longer stopped, and its end is still reported.
pub fn collect_stop(tid: Tid) {
    // SAFETY: plain integers and pointers, for which zero is a value.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let flags = libc::WSTOPPED | libc::__WALL | libc::WNOHANG;
    // SAFETY: `info` is live and of the type that waitid fills.
    let _ = unsafe { libc::waitid(libc::P_PID, tid.0 as libc::id_t, &raw mut info, flags) };
}

/// Collects an ended thread. Returns its status (wait(2)), or 0 if it cannot be collected.
pub(super) fn collect(tid: Tid) -> i32 {
    let mut status = 0;
    let flags = libc::WNOHANG | libc::__WALL;
    // SAFETY: `status` is live.
    let _ = unsafe { libc::waitpid(tid.0, &raw mut status, flags) };
    status
}

/// The process or thread created, at a stop for fork, vfork or clone (PTRACE_GETEVENTMSG).
///
/// # Errors
/// The error of ptrace(2).
pub fn begun(tid: Tid) -> Result<Tid, Errno> {
    let mut message: libc::c_ulong = 0;
    request(libc::PTRACE_GETEVENTMSG, tid, 0, &raw mut message as usize)?;
    Ok(Tid(message as i32))
}

/// Makes a running traced thread stop (PTRACE_INTERRUPT), without waiting for it.
///
/// # Errors
/// The error of ptrace(2).
pub fn interrupt(tid: Tid) -> Result<(), Errno> {
    request(libc::PTRACE_INTERRUPT, tid, 0, 0).map(drop)?;
    step("interrupt");
    Ok(())
}

/// Leaves the thread in its group stop until that ends (PTRACE_LISTEN).
///
/// # Errors
/// The error of ptrace(2).
pub fn listen(tid: Tid) -> Result<(), Errno> {
    request(libc::PTRACE_LISTEN, tid, 0, 0).map(drop)
}

/// True if a thread that has stopped at a system call is at the awaited one. False if none is
/// awaited.
pub fn is_at_awaited_call(tid: Tid) -> bool {
    let at = followed::awaited_call(tid);
    at.is_some_and(|at| registers(tid).is_ok_and(|now| now.pc() == at.0))
}

/// Resumes the thread, traced, with a signal or 0. It runs to its next system call if one is
/// awaited.
///
/// # Errors
/// The error of ptrace(2).
pub fn cont(tid: Tid, signal: i32) -> Result<(), Errno> {
    if followed::awaited_call(tid).is_some() {
        return to_call(tid, signal);
    }
    request(libc::PTRACE_CONT, tid, 0, signal as usize).map(drop)?;
    step("continue");
    Ok(())
}

/// Makes the thread execute one instruction (PTRACE_SINGLESTEP), with a signal or 0. Does not wait
/// for it.
///
/// # Errors
/// The error of ptrace(2).
pub fn single_step(tid: Tid, signal: i32) -> Result<(), Errno> {
    request(libc::PTRACE_SINGLESTEP, tid, 0, signal as usize).map(drop)
}

/// Resumes the thread until the entry or exit of a system call, with a signal or 0. Unlike
/// PTRACE_SINGLESTEP, this leaves no trap in the program if the tracer ends meanwhile.
///
/// # Errors
/// The error of ptrace(2).
pub fn to_call(tid: Tid, signal: i32) -> Result<(), Errno> {
    request(libc::PTRACE_SYSCALL, tid, 0, signal as usize).map(drop)?;
    step("to call");
    Ok(())
}

/// Resumes the thread untraced, with a signal or 0.
///
/// # Errors
/// The error of ptrace(2).
pub fn detach(tid: Tid, signal: i32) -> Result<(), Errno> {
    request(libc::PTRACE_DETACH, tid, 0, signal as usize).map(drop)?;
    step("detach");
    Ok(())
}

/// The registers of a stopped thread.
///
/// # Errors
/// The error of ptrace(2).
pub fn registers(tid: Tid) -> Result<Registers, Errno> {
    let mut registers = Registers::zeroed();
    let to = &raw mut registers as usize;
    request(libc::PTRACE_GETREGS, tid, 0, to)?;
    Ok(registers)
}

/// Sets the registers of a stopped thread.
///
/// # Errors
/// The error of ptrace(2).
pub fn set_registers(tid: Tid, registers: &Registers) -> Result<(), Errno> {
    let from: *const Registers = registers;
    request(libc::PTRACE_SETREGS, tid, 0, from as usize).map(drop)?;
    step("set registers");
    Ok(())
}

/// The extended state (vector registers and the like) of a stopped thread, as XSAVE stores it.
///
/// # Errors
/// The error of ptrace(2).
pub fn extended_state(tid: Tid) -> Result<Vec<u8>, Errno> {
    /// AMX, the largest component, needs 11 KiB.
    const MAX_STATE_BYTES: usize = 32 * 1024;
    let mut state = vec![0u8; MAX_STATE_BYTES];
    let mut vector = libc::iovec {
        iov_base: state.as_mut_ptr().cast(),
        iov_len: MAX_STATE_BYTES,
    };
    let to = &raw mut vector as usize;
    request(libc::PTRACE_GETREGSET, tid, EXTENDED_STATE, to)?;
    state.truncate(vector.iov_len);
    Ok(state)
}

/// Sets the extended state of a stopped thread from a value of [`extended_state`].
///
/// # Errors
/// The error of ptrace(2).
pub fn set_extended_state(tid: Tid, state: &[u8]) -> Result<(), Errno> {
    let mut vector = libc::iovec {
        iov_base: state.as_ptr().cast_mut().cast(),
        iov_len: state.len(),
    };
    let from = &raw mut vector as usize;
    request(libc::PTRACE_SETREGSET, tid, EXTENDED_STATE, from).map(drop)
}

/// The signal mask of a stopped thread (bit `n - 1` for signal `n`).
///
/// # Errors
/// The error of ptrace(2).
pub fn signal_mask(tid: Tid) -> Result<u64, Errno> {
    let mut mask = 0u64;
    request(GETSIGMASK, tid, size_of::<u64>(), &raw mut mask as usize)?;
    Ok(mask)
}

/// Sets the signal mask of a stopped thread (bit `n - 1` for signal `n`).
///
/// # Errors
/// The error of ptrace(2).
pub fn set_signal_mask(tid: Tid, mask: u64) -> Result<(), Errno> {
    request(SETSIGMASK, tid, size_of::<u64>(), &raw const mask as usize)?;
    step("set signal mask");
    Ok(())
}

/// The latest event of a thread since it was last resumed. Does not wait. A thread that is not
/// traced counts as ended.
///
/// A stop is inspected without being collected. Otherwise a signal that is about to be delivered
/// would be lost if the tracer were killed.
///
/// # Errors
/// The error of waitid(2) or ptrace(2).
pub fn change(tid: Tid) -> Result<Change, Errno> {
    match seen(tid) {
        Ok(Change::Ended) => {
            // The tracer of an ended thread must collect it. Followed processes are collected when
            // their end is recorded.
            let is_noted = followed::process_of(tid).is_some_and(|pid| pid.0 == tid.0);
            if !is_noted && !is_own_child(tid) {
                collect(tid);
            }
            Ok(Change::Ended)
        }
        Err(Errno::ECHILD) => Ok(Change::Ended),
        other => other,
    }
}

/// Like [`change`], but never collects an ended thread. ECHILD if it has been collected or is not
/// traced.
pub(super) fn seen(tid: Tid) -> Result<Change, Errno> {
    // SAFETY: plain integers and pointers, for which zero is a value.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let flags = libc::WSTOPPED | libc::WEXITED | libc::WNOWAIT | libc::__WALL | libc::WNOHANG;
    // SAFETY: `info` is live and of the type that waitid fills.
    if unsafe { libc::waitid(libc::P_PID, tid.0 as libc::id_t, &raw mut info, flags) } < 0 {
        return match Errno::last() {
            Errno::EINTR => Ok(Change::None),
            errno => Err(errno),
        };
    }
    // SAFETY: waitid fills these fields. They are 0 if there is no event.
    let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
    if pid == 0 {
        return Ok(Change::None);
    }
    Ok(match info.si_code {
        libc::CLD_TRAPPED | libc::CLD_STOPPED => match (status & 0xff, status >> 8) {
            (CALL_STOP, 0) => Change::Call,
            (signal, 0) => Change::Signal(signal),
            (signal, EVENT_STOP) => Change::Stopped(signal != libc::SIGTRAP),
            (_, libc::PTRACE_EVENT_EXEC) => Change::Replaced,
            (_, event) => Change::Other(event),
        },
        _ => Change::Ended,
    })
}

/// True if the thread is a process that this one has started. Its status is collected elsewhere.
fn is_own_child(tid: Tid) -> bool {
    let status = read_text(format!("/proc/{tid}/status")).unwrap_or_default();
    let field = |key| status_line(&status, key)?.parse::<i32>().ok();
    let own = std::process::id() as i32;
    field("Tgid") == Some(tid.0) && field("PPid") == Some(own)
}
