//! Counters of a processor that has none: a tracer answers what the program asks the kernel and the processor for.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use nix::errno::Errno;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// Descriptors of tests/programs/simulated_counter.c: of the page of an event of the processor's, and of the thread's.
const EVENT_FD: u64 = 40;
const THREAD_FD: u64 = 41;
/// Where in the first file what rdpmc takes plus 1 is, and what it gives.
const INDEX: u64 = 12;
const HELD: u64 = 2048;

/// Traces a process until it sends itself SIGUSR2, and has it find perf events and a counter by the file of its page. How often
/// it has opened an event of the processor's, and read its counter.
///
/// # Panics
/// When it does something else with them than it should, or ends.
pub fn count_for(pid: u32, page: &Path) -> (u32, u32) {
    let page = File::open(page).expect("made by the program");
    let main = Pid::from_raw(pid as i32);
    let options = Options::PTRACE_O_TRACESYSGOOD | Options::PTRACE_O_TRACECLONE;
    ptrace::seize(main, options).expect("an own child");
    ptrace::interrupt(main).expect("it runs");
    // It goes on as soon as it is led from one system call to the next.
    kill(main, Signal::SIGUSR1).expect("there");
    let (mut opened, mut read) = (0, 0);
    loop {
        let flags = WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD;
        let (pid, signal) = match waitpid(None, Some(flags)).expect("it goes on") {
            WaitStatus::PtraceSyscall(pid) => {
                opened += u32::from(open_event(pid));
                (pid, None)
            }
            WaitStatus::Stopped(pid, Signal::SIGSEGV) => {
                read_counter(pid, &page);
                read += 1;
                (pid, None)
            }
            WaitStatus::Stopped(pid, Signal::SIGUSR2) => {
                ptrace::detach(pid, None).expect("stopped");
                return (opened, read);
            }
            WaitStatus::Stopped(pid, signal) => (pid, Some(signal)),
            WaitStatus::PtraceEvent(pid, ..) => (pid, None),
            WaitStatus::Exited(pid, _) if pid != main => continue,
            other => panic!("{other:?}"),
        };
        match ptrace::syscall(pid, signal) {
            // Killed meanwhile: it is seen above.
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(error) => panic!("resume {pid}: {error}"),
        }
    }
}

/// Has a thread that opens a perf event open the program's file for it; true if it is one of the processor's.
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

/// Does what rdpmc would.
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
