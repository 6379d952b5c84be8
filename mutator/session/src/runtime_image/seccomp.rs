//! The runtime in a process that may make no system call. It runs in a child of the test, under a
//! seccomp filter: the kernel kills the child if it makes a call.

use std::arch::naked_asm;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use abi::image::{SYMBOL_ENTRY_STUB, SYMBOL_EXIT_STUB};

use super::PAGE;
use super::laid::{CLOCK, Laid, hook, map, put, segment};

const FUNCTION: u32 = 3;
const CALLS: u64 = 1000;
/// More calls than fit into the frames that a thread has at first, so that these must grow.
const DEPTH: u64 = 600;

/// A function with probes at its entry and its exit. Its code is that of the trampolines in one
/// piece.
fn probed(laid: &Laid) -> extern "C" fn() {
    let code = map(PAGE);
    let mut bytes = Vec::new();
    for stub in [SYMBOL_ENTRY_STUB, SYMBOL_EXIT_STUB] {
        hook(&mut bytes, FUNCTION, stub);
    }
    bytes.push(0xc3);
    put(code, &bytes);
    laid.fill_cells(code);
    // SAFETY: the code is a function without arguments.
    unsafe { std::mem::transmute::<u64, extern "C" fn()>(code) }
}

#[inline(never)]
fn nested(depth: u64, function: extern "C" fn()) -> u64 {
    if depth == 0 {
        function();
        return 0;
    }
    std::hint::black_box(nested(depth - 1, function)) + 1
}

/// Ends the process by the only call that the filter allows: exit(2).
#[unsafe(naked)]
extern "C" fn exit(_: i32) -> ! {
    naked_asm!("mov eax, 60", "syscall", "ud2");
}

/// Installs a filter that allows exit(2). At any other call the kernel kills the process. Strict
/// mode would do that too, but it also forbids the time-stamp counter.
fn forbid_calls() -> i32 {
    const EXIT: u32 = 60;
    const NUMBER: u32 = 0;
    let step = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    let mut steps = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, NUMBER),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, EXIT),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
        step(
            libc::BPF_RET | libc::BPF_K,
            0,
            0,
            libc::SECCOMP_RET_KILL_PROCESS,
        ),
    ];
    let filter = libc::sock_fprog {
        len: steps.len() as u16,
        filter: steps.as_mut_ptr(),
    };
    // SAFETY: the length of the filter is right, and the kernel copies it.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER,
            &raw const filter,
        )
    }
}

/// The child. Once the filter is installed, it makes only the last call.
fn child(function: extern "C" fn()) -> ! {
    let result = forbid_calls();
    if result == 0 {
        for _ in 0..CALLS {
            function();
        }
        nested(3, function);
        nested(DEPTH, function);
    }
    exit(result)
}

#[test]
fn no_system_call_is_made_where_none_may_be() {
    const MOST_PATHS: u64 = 100;
    let laid = Laid::new();
    let segment = segment(0, MOST_PATHS);
    let function = probed(&laid);
    laid.measure(FUNCTION, &[CLOCK]);
    laid.begin(&segment, MOST_PATHS);
    // SAFETY: the child takes no lock of the C library's.
    let pid = match unsafe { libc::fork() } {
        0 => child(function),
        pid => nix::unistd::Pid::from_raw(pid),
    };
    let status = nix::sys::wait::waitpid(pid, None).expect("a child");
    assert_eq!(status, nix::sys::wait::WaitStatus::Exited(pid, 0));
    let used = segment.header().records_used.load(Acquire);
    let records: Vec<_> = (0..used)
        .filter_map(|index| segment.record(index))
        .collect();
    let sum = |of: fn(&abi::segment::RecordHead) -> u64| records.iter().map(|r| of(r)).sum::<u64>();
    assert_eq!(sum(|r| r.entered.load(Relaxed)), CALLS + 2);
    assert_eq!(sum(|r| r.closed.load(Relaxed)), CALLS + 2);
    assert_eq!(segment.header().missed.load(Relaxed), 0);
    assert_eq!(segment.thread(0).expect("there").missed.load(Relaxed), 0);
    let complete = |path: u32| {
        let mut at = path;
        while at >= abi::segment::FIRST_NODE {
            at = segment.node(at).expect("there").parent.load(Relaxed);
        }
        at == abi::segment::ROOT_COMPLETE
    };
    assert!(records.iter().all(|r| complete(r.path.load(Relaxed))));
    assert_eq!(records.len(), 3, "each on a path of its own");
}
