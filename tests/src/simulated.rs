//! Simulated performance counters for a machine without any: a tracer answers the program's system
//! calls and its rdpmc instructions.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use nix::errno::Errno;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// The descriptor of tests/programs/simulated_counter.c for the page of a hardware event.
const EVENT_FD: u64 = 40;
/// Its descriptor for the thread's event.
const THREAD_FD: u64 = 41;
/// The offset in the page file of the operand of rdpmc plus 1.
const INDEX: u64 = 12;
/// The offset in the page file of the result of rdpmc.
const HELD: u64 = 2048;

/// Traces a process until it sends itself SIGUSR2. Its perf_event_open succeeds, and its counter is
/// the file `page`. Returns how often it opened a hardware event, and how often it read its
/// counter.
///
/// # Panics
/// If it uses them in an unexpected way, or ends.
pub fn count_for(pid: u32, page: &Path) -> (u32, u32) {
    let page = File::open(page).expect("made by the program");
    let main = Pid::from_raw(pid as i32);
    let options = Options::PTRACE_O_TRACESYSGOOD | Options::PTRACE_O_TRACECLONE;
    ptrace::seize(main, options).expect("an own child");
    ptrace::interrupt(main).expect("it runs");
    // It continues once it is traced from one system call to the next.
    kill(main, Signal::SIGUSR1).expect("there");
    let (mut opened, mut read) = (0, 0);
    // The other threads that have been seen and have not been reported to have ended. One stays
    // listed, and traced, until its end is reported.
    let mut others = BTreeSet::new();
    let mut is_over = false;
    loop {
        if is_over && others.is_empty() {
            ptrace::detach(main, None).expect("stopped");
            return (opened, read);
        }
        let flags = WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD;
        let status = waitpid(None, Some(flags)).expect("it goes on");
        others.extend(status.pid().filter(|&pid| pid != main));
        let (pid, signal) = match status {
            WaitStatus::PtraceSyscall(pid) => {
                opened += u32::from(open_event(pid));
                (pid, None)
            }
            WaitStatus::Stopped(pid, Signal::SIGSEGV) => {
                read_counter(pid, &page);
                read += 1;
                (pid, None)
            }
            WaitStatus::Stopped(pid, Signal::SIGUSR2) if pid == main => {
                is_over = true;
                continue;
            }
            WaitStatus::Stopped(pid, signal) => (pid, Some(signal)),
            WaitStatus::PtraceEvent(pid, ..) => (pid, None),
            WaitStatus::Exited(pid, _) if pid != main => {
                others.remove(&pid);
                continue;
            }
            other => panic!("{other:?}"),
        };
        match ptrace::syscall(pid, signal) {
            // Killed in the meantime; the next wait reports it.
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(error) => panic!("resume {pid}: {error}"),
        }
    }
}

/// Replaces the perf event that a thread opens by the program's file. Returns true if the event is
/// a hardware event, false if it is a software event or the thread is not at the entry of
/// perf_event_open.
fn open_event(pid: Pid) -> bool {
    const SOFTWARE: i64 = 1;
    let mut registers = ptrace::getregs(pid).expect("stopped");
    let is_entry = registers.rax as i64 == -i64::from(libc::ENOSYS);
    if registers.orig_rax as i64 != libc::SYS_perf_event_open || !is_entry {
        return false;
    }
    let word = ptrace::read(pid, registers.rdi as ptrace::AddressType).expect("its attributes");
    let is_of_processor = word & 0xffff_ffff != SOFTWARE;
    registers.orig_rax = libc::SYS_dup as u64;
    registers.rdi = if is_of_processor { EVENT_FD } else { THREAD_FD };
    ptrace::setregs(pid, registers).expect("stopped");
    is_of_processor
}

/// Emulates the rdpmc at which a thread has stopped.
///
/// # Panics
/// If it has stopped elsewhere, or reads another counter.
fn read_counter(pid: Pid, page: &File) {
    const RDPMC: i64 = 0x330f;
    let mut registers = ptrace::getregs(pid).expect("stopped");
    let code = ptrace::read(pid, registers.rip as ptrace::AddressType).expect("mapped");
    assert_eq!(code & 0xffff, RDPMC, "at {:#x}", registers.rip);
    assert_eq!(registers.rcx + 1, word(page, INDEX) & 0xffff_ffff);
    let held = word(page, HELD);
    registers.rax = held & 0xffff_ffff;
    registers.rdx = held >> 32;
    registers.rip += 2;
    ptrace::setregs(pid, registers).expect("stopped");
}

fn word(page: &File, at: u64) -> u64 {
    let mut bytes = [0; 8];
    page.read_exact_at(&mut bytes, at).expect("a page");
    u64::from_le_bytes(bytes)
}
