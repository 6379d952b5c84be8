//! What the hand-written ways take, found out by calls of the runtime's own on a thread of the program, before its first
//! one is recorded.
//!
//! The stubs do all that they do for a call of the program's, with a walk that is remembered and a record, and the same is
//! done without them. The shortest of several rounds counts: nothing has come between.

use core::arch::naked_asm;
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering};

use abi::TRIAL;
use abi::probe::Kind;
use abi::schema::{SCHEMA_COUNT, SCHEMA_WALL};
use abi::segment::{Record, RecordHead};

use crate::calls::activation::{self, Activation};
use crate::calls::list::{self, BOTTOM};
use crate::calls::overhead::{PART, ipath_costs};
use crate::code::epoch;
use crate::os::parameters::{ipath_parameters, ipath_probes};
use crate::os::shared;
use crate::thread::Thread;
use crate::walk::StackRange;
use crate::walk::memo::{Apart, InEpoch};

// The stubs lead here.
unsafe extern "C" {
    fn ipath_entry_stub();
    fn ipath_exit_stub();
}

/// Calls of a round, and rounds of each kind.
const CALLS: u64 = 64;
const ROUNDS: u32 = 24;
/// Words of the longer of two walks: what one takes is told by the difference.
const WORDS: usize = 32;
/// Bytes of the stack that the calls are on.
const STACK: usize = 2048;

/// What is called.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    /// A function without probes.
    Plain,
    /// The same with one at its entry.
    Counted,
    /// And one at its exit, with so many words in its walk.
    Timed(usize),
}

/// What a call of it takes, and what has been measured of that; times [`CALLS`], in ticks.
#[derive(Clone, Copy)]
struct Taken {
    all: u64,
    measured: u64,
}

/// Finds it out, once; where no system call may be made not at all, since signals are not blocked then.
///
/// # Safety
/// On the private stack of the thread, at the beginning of the slow way; signals are blocked.
pub unsafe fn find_out(thread: *mut Thread) {
    static HAS_BEGUN: AtomicU32 = AtomicU32::new(0);
    let may = ipath_parameters.system_calls.load(Ordering::Relaxed) != 0;
    if HAS_BEGUN.load(Ordering::Relaxed) != 0 || !may || HAS_BEGUN.swap(1, Ordering::Relaxed) != 0 {
        return;
    }
    // Nothing is remembered in an epoch before that.
    epoch::renew();
    // SAFETY: the caller's promise.
    let found = unsafe {
        // Others go through the list of any thread, as far as its top.
        list::lock_own(&raw mut (*thread).calls);
        let before = Before::of(thread);
        let taken = |what| best(thread, what);
        let found = taken(What::Plain).zip(taken(What::Counted));
        let found = found.zip(taken(What::Timed(0)).zip(taken(What::Timed(WORDS))));
        before.put_back(thread);
        list::unlock(&raw mut (*thread).calls);
        found
    };
    let Some(((plain, counted), (short, long))) = found else {
        return;
    };
    let more = |than: u64, this: u64| this.saturating_sub(than);
    let all = |taken: Taken| more(plain.all, taken.all) / CALLS;
    let words = (more(short.all, long.all) << PART) / (CALLS * WORDS as u64);
    ipath_costs.word.store(words, Ordering::Relaxed);
    ipath_costs.counted.store(all(counted), Ordering::Relaxed);
    ipath_costs.timed.store(all(short), Ordering::Relaxed);
    let inside = more(plain.all, short.measured) / CALLS;
    let general = all(counted) + inside;
    ipath_costs.general.store(general, Ordering::Relaxed);
    let corrects = ipath_parameters.corrects.load(Ordering::Relaxed);
    ipath_costs
        .inside
        .store(inside & corrects, Ordering::Relaxed);
    shared::header()
        .call_cost
        .store(all(short).max(1), Ordering::Relaxed);
}

/// What a trial changes of a thread.
struct Before {
    busy: u64,
    quick: StackRange,
    entry_rbp: u64,
    quick_calls: u64,
    top: *mut Activation,
    now: u64,
}

impl Before {
    unsafe fn of(thread: *mut Thread) -> Self {
        // SAFETY: the thread is the caller's.
        unsafe {
            Self {
                busy: (*thread).busy,
                quick: (*thread).walker.quick,
                entry_rbp: (*thread).walker.entry_rbp,
                quick_calls: (*thread).walker.quick_calls,
                top: (*thread).calls.top,
                now: (*thread).now,
            }
        }
    }

    unsafe fn put_back(self, thread: *mut Thread) {
        // SAFETY: as above.
        unsafe {
            (*thread).walker.quick = self.quick;
            (*thread).walker.entry_rbp = self.entry_rbp;
            (*thread).walker.quick_calls = self.quick_calls;
            (*thread).calls.top = self.top;
            (*thread).now = self.now;
            (&raw mut (*thread).busy).write_volatile(self.busy);
        }
    }
}

/// The shortest round.
unsafe fn best(thread: *mut Thread, what: What) -> Option<Taken> {
    let mut best: Option<Taken> = None;
    for _ in 0..ROUNDS {
        // SAFETY: the caller's promise.
        let taken = unsafe { round(thread, what) };
        if let Some(taken) = taken
            && best.is_none_or(|best| taken.all < best.all)
        {
            best = Some(taken);
        }
    }
    best
}

/// A round; `None` where not all of it went the way that it was to go.
#[inline(never)]
unsafe fn round(thread: *mut Thread, what: What) -> Option<Taken> {
    /// The histogram begins with values of some ns.
    const FIRST_BUCKET: u32 = 3;
    let mut stack = MaybeUninit::<[u64; STACK / 8]>::uninit();
    let low = stack.as_mut_ptr() as u64;
    let high = low + STACK as u64;
    // Calls push their return address there.
    let slot = high - 8;
    // SAFETY: records and activations are integers and pointers, of which zeros are some.
    let (mut record, mut activations): (Record, [Activation; 2]) =
        unsafe { (core::mem::zeroed(), core::mem::zeroed()) };
    // One that has counted before has nothing more to do.
    *record.head.closed.get_mut() = 1;
    *record.first.min.get_mut() = u64::MAX;
    *record.first.first_bucket.get_mut() = FIRST_BUCKET;
    let (kind, schema, words) = match what {
        What::Plain | What::Counted => (Kind::Entry, SCHEMA_COUNT, 0),
        What::Timed(words) => (Kind::Call, SCHEMA_WALL, words),
    };
    *record.head.schema.get_mut() = schema.into();
    let probe = &ipath_probes[TRIAL as usize];
    let in_epoch = InEpoch::of(TRIAL, epoch::current()?);
    let mut run = Apart::<WORDS>::default();
    // SAFETY: all of it outlives the round; the thread is the caller's, in which nothing else happens.
    unsafe {
        activation::link(activations.as_mut_ptr(), activations.len(), ptr::null_mut());
        activations[0].slot = BOTTOM;
        activations[0].stack = high;
        run.make(words, high, (&raw const record.head).cast::<RecordHead>());
        let replaced = (*thread).walker.memo.put(slot, in_epoch, run.run());
        (*thread).walker.quick = StackRange { low, high };
        (*thread).calls.top = activations.as_mut_ptr();
        (&raw mut (*thread).busy).write_volatile(0);
        probe.kind.store(kind as u8, Ordering::Relaxed);
        probe.schema.store(schema, Ordering::Relaxed);
        probe.generation.store(1, Ordering::Relaxed);
        let all = match what {
            What::Plain => plain(CALLS, high),
            What::Counted => counted(CALLS, high),
            What::Timed(_) => timed(CALLS, high),
        };
        probe.generation.store(0, Ordering::Relaxed);
        (*thread).walker.memo.put_back(replaced);
        let head = &raw const record.head;
        let went_through = match what {
            What::Plain => true,
            What::Counted => (*head).entered.load(Ordering::Relaxed) == CALLS,
            What::Timed(_) => (*head).closed.load(Ordering::Relaxed) == CALLS + 1,
        };
        // A call that the stubs have left open counts in this.
        (*thread).calls.depths.add(TRIAL as usize).write(0);
        let measured = record.first.sum.load(Ordering::Relaxed);
        went_through.then_some(Taken { all, measured })
    }
}

/// A function that makes so many calls of `$function`, at label 10, on the stack that ends at the second argument; returns ticks.
/// As the cells of trampolines have it, [rbp] is the address of the entry's stub, and [rbp+8] that of the exit's.
macro_rules! calls {
    ($(#[$doc:meta])* $name:ident, $function:expr) => {
        $(#[$doc])*
        #[unsafe(naked)]
        unsafe extern "C" fn $name(times: u64, stack: u64) -> u64 {
            naked_asm!(
                "
    push rbp
    push r12
    push r13
    lea rax, [rip + {exit}]
    push rax
    lea rax, [rip + {entry}]
    push rax
    mov rbp, rsp
    mov rsp, rsi
    mov r12, rdi
    mov ecx, 3
    lfence
    rdtsc
    shl rdx, 32
    lea r13, [rax + rdx]
2:  call 10f
    dec r12
    jnz 2b
    lfence
    rdtsc
    shl rdx, 32
    or rax, rdx
    sub rax, r13
    lea rsp, [rbp + 16]
    pop r13
    pop r12
    pop rbp
    ret
                ",
                $function,
                entry = sym ipath_entry_stub,
                exit = sym ipath_exit_stub,
                id = const TRIAL,
            );
        }
    };
}

/// What the function does: something that takes about as long as reading the clock, by what the call before has left.
macro_rules! body {
    () => {
        "
    .rept 16
    imul rcx, rcx, 5
    .endr
        "
    };
}

/// A hook as trampolines have it: `call [rbp + OFFSET]` has six bytes there, too.
macro_rules! hook {
    ($offset:literal) => {
        concat!(
            "
    push rax
    mov eax, {id}
    .byte 0xff, 0x95
    .long ",
            $offset,
            "
    pop rax
            "
        )
    };
}

calls!(
    /// Without probes.
    plain,
    concat!("10:", body!(), "ret /* {entry} {exit} {id} */")
);
calls!(
    /// With one at the entry.
    counted,
    concat!("10: jmp 12f", "\n11:", body!(), "ret", "\n12:", hook!("0"), "jmp 11b")
);
calls!(
    /// With one at the entry and one at the exit.
    timed,
    concat!(
        "10: jmp 12f",
        "\n11:",
        body!(),
        "jmp 13f",
        "\n12:",
        hook!("0"),
        "jmp 11b",
        "\n13:",
        hook!("8"),
        "ret"
    )
);
