//! The runtime where no system call may be made: it runs in a child of the test under a seccomp filter by which the
//! kernel kills whoever makes one.

use std::arch::naked_asm;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use abi::image::{
    ALIVE, FUNCTION_EXITS, FunctionSlot, Parameters, RESERVE_PER_THREAD, RESERVE_SHARED,
    SYMBOL_ALIVE, SYMBOL_ENTRY_STUB, SYMBOL_EXIT_STUB, SYMBOL_FUNCTIONS, SYMBOL_PARAMETERS,
};
use abi::segment::{
    AREA_HISTOGRAMS, AREA_TABLES, AREA_THREADS, TABLE_OF_MAPS, TableHead, TableRow,
};

use super::*;
use crate::process::{Pid, Process};
use crate::segment::{Segment, Shape};

const FUNCTION: u32 = 3;
const CALLS: u64 = 1000;
/// More than fit into the frames that a thread has at first, so that these must grow.
const DEPTH: u64 = 600;

/// Anonymous memory of the test's.
fn map(len: u64) -> u64 {
    // SAFETY: a new mapping where the kernel chooses touches nothing that exists.
    let at = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            len as usize,
            libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    assert_ne!(at, libc::MAP_FAILED);
    at as u64
}

fn put(at: u64, bytes: &[u8]) {
    // SAFETY: `at` lies in memory from `map`, large enough.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), at as *mut u8, bytes.len()) };
}

/// The image, laid out in this process.
struct Laid {
    image: RuntimeImage,
    base: Avma,
}

impl Laid {
    fn new() -> Self {
        let image = RuntimeImage::load().expect("built in");
        let base = Avma(map(image.size));
        for (at, bytes) in image.writes(base) {
            put(at.0, &bytes);
        }
        Self { image, base }
    }

    fn at<T>(&self, symbol: &str) -> &'static T {
        let at = self.image.address(self.base, symbol).expect("exported");
        // SAFETY: the symbol is one of this type, which consists of atomics, in memory that stays.
        unsafe { &*(at.0 as *const T) }
    }

    /// A function that is probed at its entry and its exit: what the trampolines of one do, as one piece.
    fn probed(&self) -> extern "C" fn() {
        let code = map(PAGE);
        let mut bytes = Vec::new();
        for stub in [SYMBOL_ENTRY_STUB, SYMBOL_EXIT_STUB] {
            // push rax; mov eax, ID; call [rip + cell]; pop rax
            bytes.extend([0x50, 0xb8]);
            bytes.extend(FUNCTION.to_le_bytes());
            bytes.extend([0xff, 0x15]);
            let cell = PAGE as usize / 2 + if stub == SYMBOL_ENTRY_STUB { 0 } else { 8 };
            bytes.extend((cell as u32 - (bytes.len() as u32 + 4)).to_le_bytes());
            bytes.push(0x58);
            let stub = self.image.address(self.base, stub).expect("exported");
            put(code + cell as u64, &stub.0.to_le_bytes());
        }
        bytes.push(0xc3);
        put(code, &bytes);
        // SAFETY: the code is a function without arguments.
        unsafe { std::mem::transmute::<u64, extern "C" fn()>(code) }
    }
}

/// Bytes from the FS base to the calling thread's id.
fn tid_offset() -> i32 {
    // SAFETY: the C library keeps its control block there, which is larger.
    let block = unsafe {
        let base: *const i32;
        std::arch::asm!("mov {}, fs:0", out(reg) base);
        std::slice::from_raw_parts(base, 256)
    };
    let tid = nix::unistd::gettid().as_raw();
    let at = block.iter().position(|&word| word == tid);
    at.expect("glibc and musl keep it there") as i32 * 4
}

/// Publishes the process's maps as they are.
fn publish_maps(segment: &Segment) {
    let mut text = std::fs::read("/proc/self/maps").expect("there");
    text.resize(text.len().next_multiple_of(size_of::<TableRow>()), b'\n');
    let rows = (text.len() / size_of::<TableRow>()) as u64;
    let head = [TABLE_OF_MAPS, 0, 0, 0, 0, rows, 0];
    let mut bytes: Vec<u8> = head.iter().flat_map(|word| word.to_le_bytes()).collect();
    assert_eq!(bytes.len(), size_of::<TableHead>());
    bytes.extend(text);
    assert!(segment.write_bytes(AREA_TABLES, 0, &bytes).expect("room"));
    let used = &segment.header().tables_used;
    used.store(bytes.len() as u64, Relaxed);
}

#[inline(never)]
fn nested(depth: u64, function: extern "C" fn()) -> u64 {
    if depth == 0 {
        function();
        return 0;
    }
    std::hint::black_box(nested(depth - 1, function)) + 1
}

/// Ends by the only call that the filter lets through: exit(2).
#[unsafe(naked)]
extern "C" fn exit(_: i32) -> ! {
    naked_asm!("mov eax, 60", "syscall", "ud2");
}

/// A filter that lets exit(2) through and has the kernel kill the process for any other call. Strict mode would do the
/// same, but forbids the time-stamp counter, too.
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
    // SAFETY: the filter is as long as it says, and the kernel copies it.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER,
            &raw const filter,
        )
    }
}

/// What the child does: no call but the last is made from the filter on.
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
    const TIMERS: usize = 1;
    let laid = Laid::new();
    let process = Process {
        pid: Pid(std::process::id() as i32),
        start_time: 900,
    };
    let shape = Shape {
        max_paths: 100,
        timers: TIMERS,
    };
    let (segment, _) = Segment::create(&process, &shape).expect("created");
    segment.remove_name();
    let parameters: &Parameters = laid.at(SYMBOL_PARAMETERS);
    let set = |to: &std::sync::atomic::AtomicU64, value: u64| to.store(value, Relaxed);
    let header: *const abi::segment::Header = segment.header();
    set(&parameters.segment, header as u64);
    set(&parameters.max_paths, shape.max_paths);
    set(&parameters.scale[0], 1 << abi::image::SCALE_SHIFT);
    parameters.timers.store(TIMERS as u32, Relaxed);
    parameters.tid_offset.store(tid_offset(), Relaxed);
    let reserve = RESERVE_SHARED + RESERVE_PER_THREAD;
    set(&parameters.reserve, map(reserve));
    set(&parameters.reserve_len, reserve);
    // None of them is smaller; where nobody has written, the memory is there when it is touched, unless /dev/shm is full.
    for populated in &parameters.populated[AREA_THREADS..=AREA_HISTOGRAMS] {
        set(populated, 128 << 10);
    }
    let function = laid.probed();
    let functions: &[FunctionSlot; abi::MAX_FUNCTIONS] = laid.at(SYMBOL_FUNCTIONS);
    functions[FUNCTION as usize]
        .flags
        .store(FUNCTION_EXITS, Relaxed);
    functions[FUNCTION as usize].generation.store(1, Relaxed);
    publish_maps(&segment);
    set(laid.at(SYMBOL_ALIVE), ALIVE);
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
