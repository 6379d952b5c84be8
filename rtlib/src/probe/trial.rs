//! Measures the cost of the assembly fast paths, by calls of the runtime's own. They run on a
//! thread of the program, before its first call is recorded.
//!
//! The stubs do the same work as for a call of the program, with a cached walk and a record. The
//! same calls are also made without probes. The shortest of several rounds counts, since it was not
//! disturbed.

use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use abi::TRIAL;
use abi::probe::{Kind, LENDS};
use abi::schema::way;
use abi::segment::RecordHead;
use abi::value::ValueLocation;

use crate::calls::activation::{self, Activation};
use crate::calls::list::{self, BOTTOM};
use crate::calls::overhead::{PART, ipath_costs};
use crate::code::epoch;
use crate::ledger::{areas, record};
use crate::os::parameters::{ipath_details, ipath_parameters, ipath_probes};
use crate::os::shared;
use crate::sources::Clocks;
use crate::thread::Thread;
use crate::walk::StackRange;
use crate::walk::memo::{Apart, InEpoch};

/// Makes `times` calls of a function with the probes `probes` ([`PLAIN`] to [`ENDED`]), on the
/// stack that ends at `stack`. Returns ticks. The stubs pass this function in, because they import
/// from this module.
pub type Calls = unsafe extern "C" fn(times: u64, stack: u64, probes: u32) -> u64;

/// Calls without probes.
pub const PLAIN: u32 = 0;
/// Calls with a probe at the entry.
pub const COUNTED: u32 = 1;
/// Calls with a probe at the entry and one at the exit.
pub const TIMED: u32 = 2;
/// Calls that leave by a tail call to a function with a probe at the entry and one at the exit.
pub const LENT: u32 = 3;
/// Calls that leave by a tail call to a function with a probe at the exit, which is not measured.
pub const ENDED: u32 = 4;

/// The number of calls per round.
const CALLS: u64 = 64;
/// The number of rounds of each kind of call.
const ROUNDS: u32 = 24;
/// The first inline bucket of a record in every other round, for times of 4 ns to 1 us. In the
/// others it is 0, for times below 128 ns: with the loose clock a call of the trial may seem to
/// take no time.
const FIRST_BUCKET: u32 = 3;
/// Words of the longer walk. The difference to the shorter one gives the cost per word.
const WORDS: usize = 32;
/// Size of the stack for the calls, in bytes.
const STACK: usize = 2048;

/// The kind of the calls of a trial, and the number of words in their walk.
#[derive(Clone, Copy)]
struct What {
    hooks: Hooks,
    way: u8,
    words: usize,
}

/// The probes of the function.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Hooks {
    None,
    Entry,
    Both,
    /// Those of two functions, the first of which leaves by a tail call to the second.
    Lent,
    /// The same, with the second function's exit only.
    Ended,
}

impl What {
    /// The function without probes.
    const PLAIN: Self = Self {
        hooks: Hooks::None,
        way: way::COUNTED,
        words: 0,
    };
    const COUNTED: Self = Self {
        hooks: Hooks::Entry,
        ..Self::PLAIN
    };
    const TIMED: Self = Self {
        hooks: Hooks::Both,
        way: way::TIMED,
        words: 0,
    };
    const LENT: Self = Self {
        hooks: Hooks::Lent,
        ..Self::TIMED
    };
    const ENDED: Self = Self {
        hooks: Hooks::Ended,
        ..Self::TIMED
    };
    const LONG: Self = Self {
        words: WORDS,
        ..Self::TIMED
    };
    /// The other ways, with the number of record columns that each needs.
    const OTHERS: [(Self, usize); 4] = [
        (
            Self {
                way: way::STEADY,
                ..Self::TIMED
            },
            1,
        ),
        (
            Self {
                way: way::ARGUMENT,
                ..Self::COUNTED
            },
            2,
        ),
        (
            Self {
                way: way::TIMED_ARGUMENT,
                ..Self::TIMED
            },
            3,
        ),
        (
            Self {
                way: way::TIMED_RESULT,
                ..Self::TIMED
            },
            3,
        ),
    ];
}

/// The cost of [`CALLS`] calls, and the part of that cost that the calls themselves have measured,
/// in ticks.
#[derive(Clone, Copy)]
struct Taken {
    all: u64,
    measured: u64,
    /// The part of `measured` that is not nested in another call.
    outermost: u64,
}

/// Measures the costs, once. If system calls are not allowed, does nothing, because signals are not
/// blocked then.
///
/// # Safety
/// The caller is on the private stack of the thread, at the start of the slow path, with signals
/// blocked.
pub unsafe fn find_out(thread: *mut Thread, calls: Calls) {
    static HAS_BEGUN: AtomicU32 = AtomicU32::new(0);
    let may = ipath_parameters.system_calls.load(Ordering::Relaxed) != 0;
    if HAS_BEGUN.load(Ordering::Relaxed) != 0 || !may || HAS_BEGUN.swap(1, Ordering::Relaxed) != 0 {
        return;
    }
    if ipath_costs.are_known() {
        return;
    }
    let columns = shared::header().columns.load(Ordering::Relaxed) as usize;
    let Some(record) = record::make_without_path(columns) else {
        // There may be room later.
        HAS_BEGUN.store(0, Ordering::Relaxed);
        return;
    };
    // Restarts the count of switches, so that the time of this long trial counts unless it is
    // preempted.
    // SAFETY: guaranteed by the caller.
    unsafe { (*thread).meter.sources.has_been_out() };
    // Walks are only cached in an epoch that has been renewed.
    epoch::renew();
    // SAFETY: guaranteed by the caller.
    unsafe {
        // Other threads may traverse the list of any thread, up to its top.
        list::lock_own(&raw mut (*thread).calls);
        let before = Before::of(thread);
        try_all(thread, record, columns, calls);
        before.put_back(thread);
        list::unlock(&raw mut (*thread).calls);
    }
}

/// Measures the cost of each way for which a record has enough columns.
unsafe fn try_all(thread: *mut Thread, record: &RecordHead, columns: usize, calls: Calls) {
    // SAFETY: guaranteed by the caller.
    let taken = |what| unsafe { best(thread, record, what, calls) };
    let found = taken(What::PLAIN).zip(taken(What::COUNTED));
    let found = found.zip(taken(What::TIMED).zip(taken(What::LONG)));
    let Some(((plain, counted), (short, long))) = found else {
        return;
    };
    let more = |than: u64, this: u64| this.saturating_sub(than);
    let all = |taken: Taken| more(plain.all, taken.all) / CALLS;
    let inside = |taken: Taken| more(plain.all, taken.measured) / CALLS;
    let corrects = ipath_parameters.corrects.load(Ordering::Relaxed);
    let set = |of: &AtomicU64, ticks: u64| of.store(ticks, Ordering::Relaxed);
    let words = (more(short.all, long.all) << PART) / (CALLS * WORDS as u64);
    set(&ipath_costs.word, words);
    set(&ipath_costs.counted, all(counted));
    set(&ipath_costs.timed, all(short));
    set(&ipath_costs.general, all(counted) + inside(short));
    let mut inside_steady = inside(short);
    let mut inside_argument = inside(short);
    for (what, _) in What::OTHERS.iter().filter(|(_, needs)| *needs <= columns) {
        let like = match what.hooks {
            Hooks::Both => short,
            _ => counted,
        };
        let taken = taken(*what).unwrap_or(like);
        set(ipath_costs.besides(what.way), all(taken));
        match what.way {
            way::STEADY => inside_steady = inside(taken),
            way::TIMED_ARGUMENT => inside_argument = inside(taken),
            _ => {}
        }
    }
    // Of each call, only these parts differ from what is subtracted for an entry and an exit.
    let times = CALLS as i64;
    let signed = |ticks: u64| ticks as i64;
    let body = signed(plain.all);
    let both = signed(all(short));
    let set_lent = |cost: &AtomicU64, after: &AtomicU64, taken: Taken, entries: i64| {
        let own = signed(taken.all) - body;
        let lent = own / times - entries * both;
        let before = (signed(taken.outermost) - body) / times;
        let known = signed(inside(short)) + (entries - 1) * both;
        set(cost, lent as u64);
        set(after, (lent - (before - known)) as u64 & corrects);
    };
    if let Some(lent) = taken(What::LENT) {
        set_lent(&ipath_costs.lent, &ipath_costs.lent_after, lent, 2);
    }
    if let Some(ended) = taken(What::ENDED) {
        set_lent(&ipath_costs.ender, &ipath_costs.ender_after, ended, 1);
    }
    // These come last: entries subtract them, and so they would be missing in the times above.
    set(&ipath_costs.inside, inside(short) & corrects);
    set(&ipath_costs.inside_steady, inside_steady & corrects);
    set(&ipath_costs.inside_argument, inside_argument & corrects);
    let cost = &shared::header().call_cost;
    set(cost, all(short).max(1));
}

/// The state of a thread that a trial changes.
struct Before {
    busy: u64,
    quick: StackRange,
    entry_fp: u64,
    quick_calls: u64,
    top: *mut Activation,
    now: u64,
    clocks: Clocks,
}

impl Before {
    /// Saves the state. Makes the thread appear as one that is never switched out.
    unsafe fn of(thread: *mut Thread) -> Self {
        // SAFETY: the thread belongs to the caller.
        unsafe {
            Self {
                busy: (*thread).busy,
                quick: (*thread).walker.quick,
                entry_fp: (*thread).walker.entry_fp,
                quick_calls: (*thread).walker.quick_calls,
                top: (*thread).calls.top,
                now: (*thread).now,
                clocks: (*thread).meter.sources.never_switched(),
            }
        }
    }

    /// Restores the state.
    unsafe fn put_back(self, thread: *mut Thread) {
        // SAFETY: as above.
        unsafe {
            (*thread).walker.quick = self.quick;
            (*thread).walker.entry_fp = self.entry_fp;
            (*thread).walker.quick_calls = self.quick_calls;
            (*thread).calls.top = self.top;
            (*thread).now = self.now;
            (*thread).meter.sources.put_back(self.clocks);
            (&raw mut (*thread).busy).write_volatile(self.busy);
        }
    }
}

/// The result of the shortest round; `None` if no round took the intended path.
unsafe fn best(
    thread: *mut Thread,
    record: &RecordHead,
    what: What,
    calls: Calls,
) -> Option<Taken> {
    let mut best: Option<Taken> = None;
    for number in 0..ROUNDS {
        let first = FIRST_BUCKET * (number % 2);
        // SAFETY: guaranteed by the caller.
        let taken = unsafe { round(thread, record, what, calls, first) };
        if let Some(taken) = taken
            && best.is_none_or(|best| taken.all < best.all)
        {
            best = Some(taken);
        }
    }
    best
}

/// Runs a round. `None` if not all calls took the intended path.
#[inline(never)]
unsafe fn round(
    thread: *mut Thread,
    record: &RecordHead,
    what: What,
    calls: Calls,
    first_bucket: u32,
) -> Option<Taken> {
    let mut stack = MaybeUninit::<[u64; STACK / 8]>::uninit();
    let low = stack.as_mut_ptr() as u64;
    let high = low + STACK as u64;
    // Calls push their return address there.
    let slot = high - 8;
    // SAFETY: activations are integers and pointers, for which zero is valid.
    let mut activations: [Activation; 3] = unsafe { core::mem::zeroed() };
    prepare(record, what.way, first_bucket);
    let kind = match what.hooks {
        Hooks::None | Hooks::Entry => Kind::Entry,
        Hooks::Both | Hooks::Lent | Hooks::Ended => Kind::Call,
    };
    let probe = &ipath_probes[TRIAL as usize];
    let in_epoch = InEpoch::of(TRIAL, epoch::current()?);
    let mut run = Apart::<WORDS>::default();
    // SAFETY: all objects outlive the round. The thread belongs to the caller and does nothing else
    // meanwhile.
    unsafe {
        activation::link(activations.as_mut_ptr(), activations.len(), ptr::null_mut());
        activations[0].slot = BOTTOM;
        activations[0].stack = high;
        run.make(what.words, high, record);
        let replaced = (*thread).walker.memo.put(slot, in_epoch, run.run());
        (*thread).walker.quick = StackRange { low, high };
        (*thread).calls.top = activations.as_mut_ptr();
        (*thread).meter.sources.run_from_now();
        (&raw mut (*thread).busy).write_volatile(0);
        probe.kind.store(kind as u8, Ordering::Relaxed);
        // The function may lend its calls, to itself.
        probe.lending.store(LENDS, Ordering::Relaxed);
        probe.generation.store(1, Ordering::Relaxed);
        let probes = match what.hooks {
            Hooks::None => PLAIN,
            Hooks::Entry => COUNTED,
            Hooks::Both => TIMED,
            Hooks::Lent => LENT,
            Hooks::Ended => ENDED,
        };
        let all = calls(CALLS, high, probes);
        probe.generation.store(0, Ordering::Relaxed);
        (*thread).walker.memo.put_back(replaced);
        let closed = record.closed.load(Ordering::Relaxed);
        let is_as_planned = match what.hooks {
            Hooks::None => true,
            Hooks::Entry => record.entered.load(Ordering::Relaxed) == CALLS + 1,
            Hooks::Both | Hooks::Ended => closed == CALLS + 1,
            Hooks::Lent => closed == 2 * CALLS + 1,
        };
        // Calls that the stubs left open are still counted there.
        (*thread).calls.depths.add(TRIAL as usize).write(0);
        let column = areas::column(record, 0);
        let taken = Taken {
            all,
            measured: column.sum.load(Ordering::Relaxed),
            outermost: column.outermost.load(Ordering::Relaxed),
        };
        is_as_planned.then_some(taken)
    }
}

/// Makes the record look as if it had counted a call before, so that no first-time work is left.
fn prepare(record: &RecordHead, way: u8, first_bucket: u32) {
    const VALUE: ValueLocation = ValueLocation {
        register: 0,
        is_vector: false,
        width: 3,
        is_signed: true,
    };
    /// This location for every value.
    const VALUES: u64 = VALUE.encode() as u64 * 0x01_0101_0101_0101;
    let details = &ipath_details[TRIAL as usize];
    details.store(VALUES, Ordering::Relaxed);
    record.way.store(way, Ordering::Relaxed);
    record.entered.store(1, Ordering::Relaxed);
    record.closed.store(1, Ordering::Relaxed);
    let columns = match way {
        _ if way < way::ARGUMENT => 1,
        _ if way < way::TIMED_RESULT => 2,
        _ => 3,
    };
    for number in 0..columns {
        let column = areas::column(record, number);
        column.sum.store(0, Ordering::Relaxed);
        column.outermost.store(0, Ordering::Relaxed);
        column.min.store(u64::MAX, Ordering::Relaxed);
        column.first_bucket.store(first_bucket, Ordering::Relaxed);
        for bucket in &column.buckets {
            bucket.store(0, Ordering::Relaxed);
        }
    }
}
