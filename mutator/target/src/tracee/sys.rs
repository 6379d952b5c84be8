//! ptrace(2) and waitid(2) as they are needed here, with signals as plain numbers: real-time
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

/// Marks stops at system calls, so that they are not taken for a trap of the program's: not by us,
/// and not by the kernel, which makes a signal of a stop whose tracer has ended.
const OPTIONS: usize = libc::PTRACE_O_TRACESYSGOOD as usize;
/// The number of such a stop.
const CALL_STOP: i32 = libc::SIGTRAP | 0x80;
/// The event of a stop by PTRACE_INTERRUPT or of the group.
const EVENT_STOP: i32 = 128;
/// PTRACE_O_SUSPEND_SECCOMP: the thread's filters do not act while it is traced by this tracer.
const SUSPEND_SECCOMP: usize = libc::PTRACE_O_SUSPEND_SECCOMP as usize;

/// What a traced thread has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing yet.
    None,
    /// Stopped, for PTRACE_INTERRUPT or at its beginning; or, where it is true, with its group.
    Stopped(bool),
    /// Stopped at the beginning or end of a system call.
    Call,
    /// Stopped on the way to this signal, which it gets when it goes on.
    Signal(i32),
    /// It has become another program, by its first thread whichever has made it so.
    Replaced,
    /// Stopped at another event.
    Other(i32),
    /// Ended.
    Ended,
}

/// The options of what the calling thread traces.
fn options() -> usize {
    OPTIONS | followed::options()
}

fn request(
    request: libc::c_uint,
    tid: Tid,
    address: usize,
    data: usize,
) -> Result<libc::c_long, Errno> {
    // SAFETY: callers pass what each request asks for: numbers, or pointers to live values.
    let result = unsafe { libc::ptrace(request, tid.0, address, data) };
    if result < 0 {
        Err(Errno::last())
    } else {
        Ok(result)
    }
}

/// PTRACE_GET_RSEQ_CONFIGURATION: where the thread's `struct rseq` is, if it has one.
pub fn sequence_area(tid: Tid) -> Option<Avma> {
    // SAFETY: plain integers, for which zero is a value.
    let mut found: libc::ptrace_rseq_configuration = unsafe { std::mem::zeroed() };
    let len = size_of_val(&found);
    let to = (&raw mut found) as usize;
    request(libc::PTRACE_GET_RSEQ_CONFIGURATION, tid, len, to).ok()?;
    Some(Avma(found.rseq_abi_pointer)).filter(|at| at.0 != 0)
}

/// PTRACE_SEIZE.
pub fn seize(tid: Tid) -> Result<(), Errno> {
    request(libc::PTRACE_SEIZE, tid, 0, options()).map(drop)?;
    step("seize");
    Ok(())
}

/// PTRACE_SEIZE of a thread to observe one execve(2).
pub fn seize_for_exec(tid: Tid) -> Result<(), Errno> {
    let options = OPTIONS | libc::PTRACE_O_TRACEEXEC as usize;
    request(libc::PTRACE_SEIZE, tid, 0, options).map(drop)
}

/// What PTRACE_SEIZE does beside tracing, for a thread that has had itself traced.
pub fn set_options(tid: Tid) -> Result<(), Errno> {
    request(libc::PTRACE_SETOPTIONS, tid, 0, options()).map(drop)
}

/// Has the thread's seccomp filters not act until [`set_options`]; EPERM without CAP_SYS_ADMIN.
pub fn suspend_seccomp(tid: Tid) -> Result<(), Errno> {
    request(libc::PTRACE_SETOPTIONS, tid, 0, OPTIONS | SUSPEND_SECCOMP).map(drop)
}

/// The signals that are on their way to this very thread, each with its `si_code`. Nothing of the queue is taken.
pub fn queued(tid: Tid) -> Result<Vec<(i32, i32)>, Errno> {
    const MOST: usize = 32;
    // SAFETY: plain integers and pointers, for which zero is a value.
    let mut queued: [libc::siginfo_t; MOST] = unsafe { std::mem::zeroed() };
    let arguments = libc::ptrace_peeksiginfo_args {
        off: 0,
        flags: 0,
        nr: MOST as i32,
    };
    let (which, to) = (&raw const arguments as usize, &raw mut queued as usize);
    let found = request(libc::PTRACE_PEEKSIGINFO, tid, which, to)?;
    let queued = queued.iter().take(found as usize);
    Ok(queued.map(|s| (s.si_signo, s.si_code)).collect())
}

/// The signal whose delivery the thread has stopped at.
pub fn delivered(tid: Tid) -> Result<libc::siginfo_t, Errno> {
    // SAFETY: plain integers and pointers, for which zero is a value.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    request(libc::PTRACE_GETSIGINFO, tid, 0, &raw mut info as usize)?;
    Ok(info)
}

/// Sends a thread a signal again that was on its way to it. What comes with it is kept but where it was sent by
/// kill(2) or tgkill(2): the kernel lets nobody else claim that (`do_rt_tgsigqueueinfo`, kernel/signal.c), and it has
/// this process as its sender.
pub fn send_again(tid: Tid, info: &libc::siginfo_t) -> Result<(), Errno> {
    let process = followed::group_of(tid).ok_or(Errno::ESRCH)?.0;
    let number = info.si_signo;
    // SAFETY: the kernel reads what `info` points to.
    let sent = unsafe { libc::syscall(libc::SYS_rt_tgsigqueueinfo, process, tid.0, number, info) };
    // SAFETY: takes no pointer.
    let again = || unsafe { libc::syscall(libc::SYS_tgkill, process, tid.0, number) };
    Errno::result(sent)
        .or_else(|_| Errno::result(again()))
        .map(drop)
}

/// True if the thread has the system calls it makes handed back to it by SIGSYS (prctl(2),
/// PR_SET_SYSCALL_USER_DISPATCH), now or when it likes; `false` where the kernel cannot tell, before Linux 6.4.
pub fn dispatches_calls(tid: Tid) -> bool {
    // include/uapi/linux/ptrace.h: mode, address of the selector, begin and length of what is exempt.
    const GET_SYSCALL_USER_DISPATCH_CONFIG: libc::c_uint = 0x4211;
    let mut config = [0u64; 4];
    let (len, at) = (size_of_val(&config), config.as_mut_ptr() as usize);
    let told = request(GET_SYSCALL_USER_DISPATCH_CONFIG, tid, len, at);
    told.is_ok() && config[0] != 0
}

/// Takes note of a stop, which is not told again. That of one that has become another program can be left in no other way where it
/// was not the first of its process (`looks_like_a_spurious_pid`, kernel/ptrace.c). One that has been killed meanwhile has no stop any more,
/// and its end is still told.
pub fn collect_stop(tid: Tid) {
    // SAFETY: plain integers and pointers, for which zero is a value.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let flags = libc::WSTOPPED | libc::__WALL | libc::WNOHANG;
    // SAFETY: `info` is live and of the type that waitid fills.
    let _ = unsafe { libc::waitid(libc::P_PID, tid.0 as libc::id_t, &raw mut info, flags) };
}

/// Collects a thread that has ended; its status.
pub(super) fn collect(tid: Tid) -> i32 {
    let mut status = 0;
    let flags = libc::WNOHANG | libc::__WALL;
    // SAFETY: `status` is live.
    let _ = unsafe { libc::waitpid(tid.0, &raw mut status, flags) };
    status
}

/// PTRACE_GETEVENTMSG: of a stop at fork, vfork or clone, what has been begun.
pub fn begun(tid: Tid) -> Result<Tid, Errno> {
    let mut message: libc::c_ulong = 0;
    request(libc::PTRACE_GETEVENTMSG, tid, 0, &raw mut message as usize)?;
    Ok(Tid(message as i32))
}

/// PTRACE_INTERRUPT.
pub fn interrupt(tid: Tid) -> Result<(), Errno> {
    request(libc::PTRACE_INTERRUPT, tid, 0, 0).map(drop)?;
    step("interrupt");
    Ok(())
}

/// PTRACE_LISTEN: leaves it stopped with its group, until that goes on.
pub fn listen(tid: Tid) -> Result<(), Errno> {
    request(libc::PTRACE_LISTEN, tid, 0, 0).map(drop)
}

/// True if a thread that has stopped at a system call is at the awaited one.
pub fn is_at_awaited_call(tid: Tid) -> bool {
    let at = followed::awaited_call(tid);
    at.is_some_and(|at| registers(tid).is_ok_and(|now| now.pc() == at.0))
}

/// Resumes the thread, traced, with a signal or 0. It runs to its next system call if one is
/// awaited.
pub fn cont(tid: Tid, signal: i32) -> Result<(), Errno> {
    if followed::awaited_call(tid).is_some() {
        return to_call(tid, signal);
    }
    request(libc::PTRACE_CONT, tid, 0, signal as usize).map(drop)?;
    step("continue");
    Ok(())
}

/// PTRACE_SINGLESTEP, with a signal or 0.
pub fn single_step(tid: Tid, signal: i32) -> Result<(), Errno> {
    request(libc::PTRACE_SINGLESTEP, tid, 0, signal as usize).map(drop)
}

/// Lets it go on to the beginning or the end of a system call, with a signal or 0. Unlike a step
/// by PTRACE_SINGLESTEP this leaves no trap for the program if the tracer ends meanwhile.
pub fn to_call(tid: Tid, signal: i32) -> Result<(), Errno> {
    request(libc::PTRACE_SYSCALL, tid, 0, signal as usize).map(drop)?;
    step("to call");
    Ok(())
}

/// Lets it go on, no longer traced, with a signal or 0.
pub fn detach(tid: Tid, signal: i32) -> Result<(), Errno> {
    request(libc::PTRACE_DETACH, tid, 0, signal as usize).map(drop)?;
    step("detach");
    Ok(())
}

/// The registers.
pub fn registers(tid: Tid) -> Result<Registers, Errno> {
    let mut registers = Registers::zeroed();
    let to = &raw mut registers as usize;
    request(libc::PTRACE_GETREGS, tid, 0, to)?;
    Ok(registers)
}

/// Sets the registers.
pub fn set_registers(tid: Tid, registers: &Registers) -> Result<(), Errno> {
    let from: *const Registers = registers;
    request(libc::PTRACE_SETREGS, tid, 0, from as usize).map(drop)?;
    step("set registers");
    Ok(())
}

/// The extended state.
pub fn extended_state(tid: Tid) -> Result<Vec<u8>, Errno> {
    /// AMX, the largest there is, needs 11 KiB.
    const MOST: usize = 32 * 1024;
    let mut state = vec![0u8; MOST];
    let mut vector = libc::iovec {
        iov_base: state.as_mut_ptr().cast(),
        iov_len: MOST,
    };
    let to = &raw mut vector as usize;
    request(libc::PTRACE_GETREGSET, tid, EXTENDED_STATE, to)?;
    state.truncate(vector.iov_len);
    Ok(state)
}

/// Sets the extended state to what [`extended_state`] has given.
pub fn set_extended_state(tid: Tid, state: &[u8]) -> Result<(), Errno> {
    let mut vector = libc::iovec {
        iov_base: state.as_ptr().cast_mut().cast(),
        iov_len: state.len(),
    };
    let from = &raw mut vector as usize;
    request(libc::PTRACE_SETREGSET, tid, EXTENDED_STATE, from).map(drop)
}

/// The signal mask.
pub fn signal_mask(tid: Tid) -> Result<u64, Errno> {
    let mut mask = 0u64;
    request(GETSIGMASK, tid, size_of::<u64>(), &raw mut mask as usize)?;
    Ok(mask)
}

/// Sets the signal mask.
pub fn set_signal_mask(tid: Tid, mask: u64) -> Result<(), Errno> {
    request(SETSIGMASK, tid, size_of::<u64>(), &raw const mask as usize)?;
    step("set signal mask");
    Ok(())
}

/// What the thread has done since it was last let go. A stop is only looked at, not collected: a
/// signal it is on the way to is lost with its tracer otherwise, should that be killed.
pub fn change(tid: Tid) -> Result<Change, Errno> {
    match seen(tid) {
        Ok(Change::Ended) => {
            // Whoever traces a thread that has ended must collect it; of a process that is followed that is done where its end is noted.
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

/// The same, and one that has ended is not collected either; ECHILD where it has been, or is not traced.
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
    // SAFETY: waitid fills these fields, and they are zero where nothing has happened.
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

/// True if the thread is a process that this one has started, whose status is still asked for.
fn is_own_child(tid: Tid) -> bool {
    let status = read_text(format!("/proc/{tid}/status")).unwrap_or_default();
    let field = |key| status_line(&status, key)?.parse::<i32>().ok();
    let own = std::process::id() as i32;
    field("Tgid") == Some(tid.0) && field("PPid") == Some(own)
}
