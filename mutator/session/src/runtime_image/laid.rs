//! The image mapped into the test's own process, with functions that have probes like those of a
//! target.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use abi::image::{
    ALIVE, Parameters, RESERVE_PER_THREAD, RESERVE_SHARED, SCALE_SHIFT, SYMBOL_ALIVE,
    SYMBOL_DETAILS, SYMBOL_ENDER_STUB, SYMBOL_ENDER_TAIL_STUB, SYMBOL_ENTRY_STUB, SYMBOL_EXIT_STUB,
    SYMBOL_LEND_STUB, SYMBOL_PARAMETERS, SYMBOL_PROBES, SYMBOL_SCHEMAS, SYMBOL_TAIL_STUB,
};
use abi::probe::{Kind, LENDS, Probe};
use abi::schema::{Derived, FIRST_SCHEMA, MAX_SCHEMAS, SCHEMA_WALL, Schema, source};
use abi::segment::{
    AREA_COLUMNS, AREA_HISTOGRAMS, AREA_TABLES, AREA_THREADS, TABLE_OF_MAPS, TableHead, TableRow,
};
use abi::value::{RETURN, ValueLocation};

use super::*;
use crate::segment::{Segment, Shape};
use ipath_profile::clock::ExitClock;
use ipath_target::process::{Pid, Process};

/// The stubs that trampolines call, in the order of their cells.
pub(super) const STUBS: [&str; 6] = [
    SYMBOL_ENTRY_STUB,
    SYMBOL_EXIT_STUB,
    SYMBOL_TAIL_STUB,
    SYMBOL_LEND_STUB,
    SYMBOL_ENDER_STUB,
    SYMBOL_ENDER_TAIL_STUB,
];

/// The column of elapsed time.
pub(super) const CLOCK: Derived = Derived::Growth(source::CLOCK as u8);

/// The offset of the cells in the page of a function's code.
const CELLS: usize = PAGE as usize / 2;

/// Appends to `code` the call of a stub, as in a trampoline:
/// `push rax; mov eax, ID; call [CELL]; pop rax`.
pub(super) fn hook(code: &mut Vec<u8>, function: u32, stub: &str) {
    let number = STUBS
        .iter()
        .position(|known| *known == stub)
        .expect("one of them");
    code.extend([0x50, 0xb8]);
    code.extend(function.to_le_bytes());
    code.extend([0xff, 0x15]);
    let cell = (CELLS + 8 * number) as u32;
    code.extend((cell - (code.len() as u32 + 4)).to_le_bytes());
    code.push(0x58);
}

/// Maps anonymous memory for the test.
pub(super) fn map(len: u64) -> u64 {
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

pub(super) fn put(at: u64, bytes: &[u8]) {
    // SAFETY: `at` lies in memory from `map`, large enough.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), at as *mut u8, bytes.len()) };
}

/// The image, mapped into this process.
pub(super) struct Laid {
    pub(super) image: RuntimeImage,
    pub(super) base: Avma,
}

impl Laid {
    pub(super) fn new() -> Self {
        let image = RuntimeImage::load().expect("built in");
        let base = Avma(map(image.size));
        for (at, bytes) in image.writes(base, ExitClock::Ordered) {
            put(at.0, &bytes);
        }
        Self { image, base }
    }

    pub(super) fn at<T>(&self, symbol: &str) -> &'static T {
        let at = self.image.address(self.base, symbol).expect("exported");
        // SAFETY: the symbol has this type, which consists of atomics, and its memory stays mapped.
        unsafe { &*(at.0 as *const T) }
    }

    /// Fills the cells in a probed function's code with this image's stubs.
    pub(super) fn fill_cells(&self, code: u64) {
        for (number, stub) in STUBS.iter().enumerate() {
            let stub = self.image.address(self.base, stub).expect("exported");
            put(code + (CELLS + 8 * number) as u64, &stub.0.to_le_bytes());
        }
    }

    /// Sets the segment and the parameters as in a session in which no system call may be made.
    pub(super) fn begin(&self, segment: &Segment, max_paths: u64) {
        let parameters: &Parameters = self.at(SYMBOL_PARAMETERS);
        let set = |to: &AtomicU64, value: u64| to.store(value, Relaxed);
        let header: *const abi::segment::Header = segment.header();
        set(&parameters.segment, header as u64);
        set(&parameters.max_paths, max_paths);
        set(&parameters.scale, 1 << SCALE_SHIFT);
        parameters.tid_offset.store(tid_offset(), Relaxed);
        let reserve = RESERVE_SHARED + RESERVE_PER_THREAD;
        set(&parameters.reserve, map(reserve));
        set(&parameters.reserve_len, reserve);
        // No area is smaller. Memory that has not been written appears when it is touched, unless
        // /dev/shm is full.
        for populated in &parameters.populated[AREA_THREADS..=AREA_HISTOGRAMS] {
            set(populated, 128 << 10);
        }
        for area in [AREA_HISTOGRAMS, AREA_COLUMNS] {
            set(&parameters.populated[area], 1 << 20);
        }
        publish_maps(segment);
        set(self.at(SYMBOL_ALIVE), ALIVE);
    }

    /// Corrects times for the costs of calls, as if these had been measured, in the order of the
    /// runtime's `Costs`.
    pub(super) fn correct(&self, costs: [u64; abi::image::COSTS]) {
        let parameters: &Parameters = self.at(SYMBOL_PARAMETERS);
        parameters.corrects.store(u64::MAX, Relaxed);
        let known: &[AtomicU64; abi::image::COSTS] = self.at("ipath_costs");
        for (known, cost) in known.iter().zip(costs) {
            known.store(cost, Relaxed);
        }
    }

    /// Measures a function with these columns, and lets it lend its calls at the tail calls that
    /// allow it. Its values are signed; in functions with odd numbers they take half a register.
    pub(super) fn measure(&self, function: u32, columns: &[Derived]) {
        /// One number for all functions.
        const NUMBER: u16 = 5;
        let probes: &[Probe; abi::MAX_FUNCTIONS] = self.at(SYMBOL_PROBES);
        let probe = &probes[function as usize];
        probe.kind.store(Kind::Call as u8, Relaxed);
        let number = match columns {
            [_] => SCHEMA_WALL,
            _ => FIRST_SCHEMA,
        };
        let schemas: &[Schema; MAX_SCHEMAS] = self.at(SYMBOL_SCHEMAS);
        let schema = &schemas[usize::from(number)];
        schema.sources.store(1 << source::CLOCK, Relaxed);
        schema.columns.store(columns.len() as u32, Relaxed);
        for (rule, derived) in schema.column.iter().zip(columns) {
            rule.derived.store(derived.encode(), Relaxed);
            rule.scale.store(1 << SCALE_SHIFT, Relaxed);
        }
        let place = ValueLocation {
            register: 0,
            is_vector: false,
            width: 3 - (function % 2) as u8,
            is_signed: true,
        };
        let details: &[AtomicU64; abi::MAX_FUNCTIONS] = self.at(SYMBOL_DETAILS);
        let place = u64::from(place.encode());
        details[function as usize].store(place | place << (8 * RETURN), Relaxed);
        probe.schema.store(number, Relaxed);
        probe.lending.store(NUMBER | LENDS, Relaxed);
        probe.generation.store(1, Relaxed);
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

/// Publishes the current maps of the process.
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

/// A segment of the test without a name. `number` distinguishes the segments of one process.
pub(super) fn segment(number: u64, max_paths: u64) -> Segment {
    let process = Process {
        pid: Pid(std::process::id() as i32),
        start_time: 900 + number,
    };
    let shape = Shape {
        max_paths,
        columns: 1,
        keeps_single: false,
    };
    let (segment, _) = Segment::create(&process, &shape).expect("created");
    segment.remove_name();
    segment
}
