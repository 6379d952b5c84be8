//! Compares the hand-written ways of a call with the compiled ones: the same calls, at the same
//! times, must leave the same records.

use std::cell::Cell;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use abi::image::{
    SYMBOL_ALIVE, SYMBOL_ENDER_STUB, SYMBOL_ENDER_TAIL_STUB, SYMBOL_ENTRY_STUB, SYMBOL_EXIT_STUB,
    SYMBOL_LEND_STUB, SYMBOL_TAIL_STUB,
};
use abi::schema::Derived;
use abi::segment::{Column, FIRST_NODE, INLINE_BUCKETS};
use abi::value::RETURN;
use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, Register};

use super::PAGE;
use super::laid::{CLOCK, Laid, STUBS, hook, map, put, segment};
use crate::segment::Segment;

const MOST_PATHS: u64 = 4000;
/// The way in which a function is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exit {
    Return,
    /// By a tail call, with which the call ends.
    TailCall,
    /// By a tail call to the function with this number. The call ends when that function's call
    /// ends.
    LendsTo(usize),
}

/// A function: true if it is measured, and the way in which it is left.
type Function = (bool, Exit);

/// The first test functions, by number. Each one leads only to earlier ones.
const FUNCTIONS: [Function; 9] = [
    (true, Exit::Return),
    (true, Exit::Return),
    (true, Exit::TailCall),
    (true, Exit::LendsTo(0)),
    (true, Exit::LendsTo(3)),
    (true, Exit::LendsTo(2)),
    (false, Exit::Return),
    (false, Exit::TailCall),
    (true, Exit::LendsTo(6)),
];
/// One more function, which lends to the one that is not measured and leaves by a tail call.
const LAST: Function = (true, Exit::LendsTo(7));

/// All test functions, by number.
fn all() -> impl Iterator<Item = Function> {
    FUNCTIONS.into_iter().chain([LAST])
}

/// The number of functions that one call passes through, and the number of measured ones among
/// them.
fn through(function: usize) -> (u64, u64) {
    let (is_measured, exit) = all().nth(function).expect("a function");
    let (all, measured) = match exit {
        Exit::LendsTo(next) => through(next),
        _ => (0, 0),
    };
    (all + 1, measured + u64::from(is_measured))
}
/// The number of events in a sequence: entries and exits.
const EVENTS: usize = 6000;
/// The most calls that are open at a time in a sequence.
const MOST_DEPTH: u64 = 12;

/// An event of a sequence.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// A call of a function, from one of the call sites.
    Enter { function: usize, site: usize },
    /// The return of the innermost call.
    Leave,
}

/// A sequence of events with their times, the progress in it, and the functions.
struct Play {
    events: Vec<(Event, u64)>,
    next: Cell<usize>,
    now: Cell<u64>,
    functions: Vec<Called>,
}

/// A function with an argument and a return value.
type Called = extern "C" fn(i64) -> i64;

static mut PLAY: *const Play = std::ptr::null();

fn play() -> &'static Play {
    // SAFETY: set before the child begins, which has one thread.
    unsafe { &*PLAY }
}

/// The body of each function: makes the calls up to its end.
extern "C" fn body(_: i64) -> i64 {
    let play = play();
    loop {
        let Some(&(event, now)) = play.events.get(play.next.get()) else {
            return 0;
        };
        play.next.set(play.next.get() + 1);
        play.now.set(now);
        let Event::Enter { function, site } = event else {
            return value(now);
        };
        let function = play.functions[function];
        match site {
            0 => first(function, value(now)),
            1 => second(function, value(now)),
            _ => drop(function(value(now))),
        }
    }
}

/// A value of any size and sign, usually a small one.
fn value(now: u64) -> i64 {
    let mixed = now.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let bits = match mixed % 8 {
        0 => mixed >> 8 & 63,
        _ => 8,
    };
    (mixed as i64) >> (63 - bits)
}

#[inline(never)]
fn first(function: Called, argument: i64) {
    function(argument);
    std::hint::black_box(());
}

#[inline(never)]
fn second(function: Called, argument: i64) {
    let room = std::hint::black_box([1u64; 20]);
    function(argument);
    std::hint::black_box(room);
}

/// Numbers that look random (Marsaglia, "Xorshift RNGs", 2003), the same in each run.
struct Random(u64);

impl Random {
    /// A number below `end`.
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) % end
    }
}

/// A sequence in which all calls end.
fn events(random: &mut Random) -> Vec<(Event, u64)> {
    let mut found = Vec::new();
    let (mut depth, mut now) = (0u64, 1 << 20);
    let entered: Vec<usize> = all()
        .enumerate()
        .filter(|(_, (is_measured, _))| *is_measured)
        .map(|(id, _)| id)
        .collect();
    while found.len() < EVENTS || depth > 0 {
        // Mostly short calls, and a few that are as long as a histogram can represent.
        let bits = random.below(18);
        now += 1 + random.below(1 << bits);
        let goes_down = found.len() < EVENTS && depth < MOST_DEPTH && random.below(2) == 0;
        let event = if goes_down || depth == 0 {
            Event::Enter {
                function: entered[random.below(entered.len() as u64) as usize],
                site: random.below(3) as usize,
            }
        } else {
            Event::Leave
        };
        match event {
            Event::Enter { function, .. } => depth += through(function).0,
            Event::Leave => depth -= 1,
        }
        found.push((event, now));
    }
    found
}

/// Creates a page with each function: entry, a frame, the body, exit.
fn functions() -> Vec<u64> {
    let mut pages: Vec<u64> = Vec::new();
    for (id, (is_measured, exit)) in all().enumerate() {
        let code = map(PAGE);
        let mut bytes = Vec::new();
        if is_measured {
            hook(&mut bytes, id as u32, SYMBOL_ENTRY_STUB);
        }
        // push rbp; mov rbp, rsp; mov rax, BODY; call rax; pop rbp
        bytes.extend([0x55, 0x48, 0x89, 0xe5, 0x48, 0xb8]);
        bytes.extend((body as *const () as u64).to_le_bytes());
        bytes.extend([0xff, 0xd0, 0x5d]);
        let stub = match (is_measured, exit) {
            (true, Exit::Return) => SYMBOL_EXIT_STUB,
            (true, Exit::TailCall) => SYMBOL_TAIL_STUB,
            (_, Exit::LendsTo(_)) => SYMBOL_LEND_STUB,
            (false, Exit::Return) => SYMBOL_ENDER_STUB,
            (false, Exit::TailCall) => SYMBOL_ENDER_TAIL_STUB,
        };
        hook(&mut bytes, id as u32, stub);
        match exit {
            Exit::LendsTo(next) => {
                // mov rdi, rax; mov rax, NEXT; jmp rax
                bytes.extend([0x48, 0x89, 0xc7, 0x48, 0xb8]);
                bytes.extend(pages[next].to_le_bytes());
                bytes.extend([0xff, 0xe0]);
            }
            Exit::Return | Exit::TailCall => bytes.push(0xc3),
        }
        put(code, &bytes);
        pages.push(code);
    }
    pages
}

/// Patches a stub to jump to its compiled part at once, with the state that the hand-written part
/// has set up at its beginning.
fn without_quick(laid: &Laid, stub: &str) {
    let at = |symbol| laid.image.address(laid.base, symbol).expect("exported").0;
    let start = at(stub);
    // SAFETY: the stub is longer, and its memory stays mapped.
    let code = unsafe { std::slice::from_raw_parts(start as *const u8, 4096) };
    let decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
    let insns: Vec<Instruction> = decoder.into_iter().take(600).collect();
    let asks = |insn: &&Instruction| {
        insn.mnemonic() == Mnemonic::Cmp
            && insn.is_ip_rel_memory_operand()
            && insn.ip_rel_memory_address() == at(SYMBOL_ALIVE)
    };
    let compiled = |insn: &&Instruction| {
        insn.mnemonic() == Mnemonic::Bts && insn.memory_base() == Register::RSP
    };
    let ask = insns.iter().find(asks).expect("whether it is alive");
    let to = insns.iter().position(|insn| compiled(&insn));
    // Some stubs read the clock right before it.
    const CLOCK: usize = 3;
    let to = to.expect("the compiled part");
    let to = match insns[to - CLOCK].mnemonic() {
        Mnemonic::Rdtsc => insns[to - CLOCK].ip(),
        _ => insns[to].ip(),
    };
    let mut jump = vec![0xe9];
    jump.extend((to.wrapping_sub(ask.ip() + 5) as u32).to_le_bytes());
    put(ask.ip(), &jump);
}

/// Answers `rdtsc` with the time of the event.
extern "C" fn answer(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    const RDTSC: [u8; 2] = [0x0f, 0x31];
    // SAFETY: a handler of SIGSEGV is given a context.
    unsafe {
        let registers = &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
        let at = registers[libc::REG_RIP as usize] as *const [u8; 2];
        if at.read() != RDTSC {
            libc::abort();
        }
        let now = play().now.get();
        registers[libc::REG_RAX as usize] = (now as u32).into();
        registers[libc::REG_RDX as usize] = (now >> 32) as i64;
        registers[libc::REG_RIP as usize] += 2;
    }
}

/// Plays in a child, whose time-stamp counter is the play's.
fn act(play: &Play) {
    // SAFETY: the child takes no lock of the C library's, and ends by itself.
    unsafe {
        PLAY = play;
        let pid = libc::fork();
        if pid == 0 {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = answer as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
            libc::sigaction(libc::SIGSEGV, &raw const action, std::ptr::null_mut());
            libc::prctl(libc::PR_SET_TSC, libc::PR_TSC_SIGSEGV);
            body(0);
            libc::_exit(0);
        }
        let pid = nix::unistd::Pid::from_raw(pid);
        let status = nix::sys::wait::waitpid(pid, None).expect("a child");
        assert_eq!(status, nix::sys::wait::WaitStatus::Exited(pid, 0));
    }
}

/// The contents of a column.
fn said(segment: &Segment, column: &Column) -> Option<Vec<u64>> {
    let sums = [
        &column.sum,
        &column.min,
        &column.max,
        &column.outermost,
        &column.exclusive,
    ];
    let mut buckets = [0u64; 128];
    let first = column.first_bucket.load(Relaxed) as usize;
    for (at, count) in (first..first + INLINE_BUCKETS).zip(&column.buckets) {
        buckets[at] += u64::from(count.load(Relaxed));
    }
    if let Some(pool) = column.histogram.load(Relaxed).checked_sub(1) {
        let pool = segment.histogram(pool)?.buckets.iter();
        pool.zip(&mut buckets)
            .for_each(|(n, to)| *to += n.load(Relaxed));
    }
    let sums = sums.into_iter().map(|n| n.load(Relaxed));
    Some(sums.chain(buckets).collect())
}

/// The contents of all records, each with this number of columns, and their paths.
fn records(segment: &Segment, columns: usize) -> Vec<Vec<u64>> {
    let used = segment.header().records_used.load(Acquire);
    let path = |mut at: u32| {
        let mut keys = Vec::new();
        while at >= FIRST_NODE {
            let node = segment.node(at).expect("there");
            keys.push(node.key.load(Relaxed));
            at = node.parent.load(Relaxed);
        }
        keys.push(at.into());
        keys
    };
    let record = |index| {
        let head = segment.record(index)?;
        let counts = [&head.entered, &head.closed, &head.unwound, &head.tail];
        let mut all = vec![head.schema.load(Relaxed).into()];
        all.extend(counts.into_iter().map(|n| n.load(Relaxed)));
        for number in 0..columns {
            all.extend(said(segment, segment.column(index, number)?)?);
        }
        all.extend(path(head.path.load(Relaxed)));
        Some(all)
    };
    let mut found: Vec<_> = (0..used).filter_map(record).collect();
    found.sort();
    found
}

/// The records that a play leaves if the stubs in `compiled` jump to their compiled parts at once.
fn play_by(
    play: &Play,
    code: &[u64],
    number: u64,
    compiled: &[&str],
    (columns, costs): (&[Derived], [u64; abi::image::COSTS]),
) -> Vec<Vec<u64>> {
    let laid = Laid::new();
    let segment = segment(number, MOST_PATHS);
    for stub in compiled {
        without_quick(&laid, stub);
    }
    for (id, &page) in code.iter().enumerate() {
        laid.fill_cells(page);
        laid.measure(id as u32, columns);
    }
    laid.begin(&segment, MOST_PATHS);
    laid.correct(costs);
    act(play);
    assert_eq!(segment.thread(0).expect("there").missed.load(Relaxed), 0);
    records(&segment, columns.len())
}

fn assert_same(quick: &[Vec<u64>], compiled: &[Vec<u64>], what: &str) {
    let differ = quick.iter().zip(compiled).find(|(a, b)| a != b);
    let lens = (quick.len(), compiled.len());
    assert!(
        differ.is_none() && lens.0 == lens.1,
        "{what} compiled: {lens:?} records, the first that differ {differ:?}"
    );
}

#[test]
fn hand_written_and_compiled_ways_leave_the_same_records() {
    let code = functions();
    // SAFETY: each page begins with such a function.
    let function = |&at: &u64| unsafe { std::mem::transmute::<u64, Called>(at) };
    let mut random = Random(0x9e37_79b9);
    let with = |number| vec![CLOCK, Derived::Value(number), Derived::Negative(number)];
    let measured = [vec![CLOCK], with(0), with(RETURN)];
    for round in 0..6u64 {
        let columns = &measured[round as usize % measured.len()];
        let play = Play {
            events: events(&mut random),
            next: Cell::new(0),
            now: Cell::new(0),
            functions: code.iter().map(function).collect(),
        };
        let stubs = STUBS;
        // All calls come from one call site, which is on the paths.
        let ways = [&stubs[..0], &stubs[..1], &stubs[1..], &stubs[3..4], &stubs];
        // Without and with costs of calls, which exceed the times of some. The corrections of lent
        // calls are 0: only the hand-written ways make them.
        let costs = [
            [0; abi::image::COSTS],
            [25, 30, 35, 300, 45, 20, 60, 70, 25, 80, 75, 0, 0, 0, 0],
        ][round as usize / measured.len()];
        let by = |(number, compiled): (u64, &&[&str])| {
            play_by(&play, &code, number, compiled, (columns, costs))
        };
        let found: Vec<_> = (ways.len() as u64 * round..).zip(&ways).map(by).collect();
        let quick = &found[0];
        assert!(quick.len() > 100, "{} records", quick.len());
        for (compiled, records) in ways.iter().zip(&found).skip(1) {
            assert_same(quick, records, &compiled.join(" "));
        }
        let sum = |at: usize| quick.iter().map(|record| record[at]).sum::<u64>();
        let of_event = |event: &(Event, u64)| match event.0 {
            Event::Enter { function, .. } => through(function).1,
            Event::Leave => 0,
        };
        let expected: u64 = play.events.iter().map(of_event).sum();
        // Entered, closed, and unwound.
        assert_eq!((sum(1), sum(2), sum(3)), (expected, expected, 0));
    }
}
