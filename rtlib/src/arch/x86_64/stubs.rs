//! The stubs that trampolines call.
//!
//! A trampoline's hook is `push rax; mov eax, ID; call [CELL]; pop rax`. On entry to a stub, [rsp]
//! is the return address into the trampoline and [rsp+8] the application's rax. rsp+16 is the
//! application's stack pointer at the probe point, the address of the return address. At a point it
//! is the address below the red zone instead.
//!
//! A stub preserves every register and the flags. It uses 96 bytes of the application's stack. With
//! the compiled code on the way to a slow path, the total is less than 256 bytes.

mod count;
mod parts;
mod path;
mod point;
mod timed_path;
mod trial;

use core::arch::naked_asm;
use core::mem::{offset_of, size_of};

use abi::arch::stack::RED_ZONE;
use abi::image::{ALIVE, Parameters};
use abi::path::Row;
use abi::point::{BY_FP, FP_SHIFT, SLOT_SHIFT};
use abi::probe::{Kind, LENDING, LENDS, Probe, SPAN};
use abi::schema::way;
use abi::segment::{
    AREA_HISTOGRAMS, Area, Column, Header, Histogram, INLINE_BUCKETS, Record, RecordHead,
};
use abi::value::{RETURN, ValueLocation};
use unwind::Saved;

use super::quick::{self, SLOT};
use super::stored::{FIRST_ARGUMENT, THIRD_ARGUMENT, VECTORS};
use crate::calls::Calls;
use crate::calls::activation::{Activation, MOST_LENT, NUMBER_SHIFT};
use crate::calls::doubt::{TURNS, ipath_doubt};
use crate::calls::meter::Meter;
use crate::calls::overhead::{Costs, ipath_costs};
use crate::code::coroutines::ipath_coroutines;
use crate::code::epoch::ipath_epoch;
use crate::ledger::areas::{SecondColumn, ipath_second_column};
use crate::ledger::record;
use crate::os::hash;
use crate::os::parameters::{ipath_alive, ipath_details, ipath_parameters, ipath_probes};
use crate::os::sys;
use crate::probe::entry::{ipath_enter, ipath_remember_walk, ipath_slow_entry};
use crate::probe::exit::{
    ipath_fast_ender, ipath_fast_ender_tail, ipath_fast_exit, ipath_fast_lend,
    ipath_fast_tail_exit, ipath_slow_ender, ipath_slow_ender_tail, ipath_slow_exit,
    ipath_slow_lend, ipath_slow_tail_exit,
};
use crate::probe::next::FOUND;
use crate::probe::point::ipath_verify_point;
use crate::probe::span::{
    ipath_fast_span_end, ipath_remember_span, ipath_slow_span, ipath_slow_span_end,
};
use crate::probe::timed_path::{TO_ROW, ipath_remember_path, ipath_slow_path, ipath_verify_path};
use crate::probe::verify::ipath_verify_walk;
use crate::sources::{Cpu, Sources, cpu, page};
use crate::thread::registry::{self, REGISTRY};
use crate::thread::{self, Thread};
use crate::walk::filter::ELSEWHERE;
use crate::walk::memo::{self, Entry, Run};
use crate::walk::{StackRange, Walker};

/// Bytes between the application's stack pointer and the stub's after all its pushes.
const PUSHED: usize = SLOT + 2 * 8;

// The stub pushes the argument registers so that the first one is right above the flags.
const _: () = assert!(THIRD_ARGUMENT as usize == SLOT - quick::ARGUMENTS - 2 * 8);
const _: () = assert!(FIRST_ARGUMENT as usize == SLOT - quick::ARGUMENTS);

/// The direction flag in rflags.
const DIRECTION: u32 = 1 << 10;

/// Bytes from the function id to the hook's return address. The id is the last four bytes of the
/// hook's `mov eax, ID`, and the call has six bytes.
const ID: usize = 10;

/// Maximum number of ticks that count from the end of the slow path's work to the end of its stub.
/// If it takes longer, the thread was preempted.
const MOST_OF_END: u32 = 1 << 12;

/// Offset in [`Thread`] of the thread's sources, in bytes.
const SOURCES: usize = offset_of!(Thread, meter) + offset_of!(Meter, sources);
/// Offset in [`Thread`] of the stack on which the thread was last seen, in bytes.
const STACK: usize = offset_of!(Thread, walker) + offset_of!(Walker, stack);
/// Offset in [`Thread`] of the thread's CPU time, in bytes.
const CPU: usize = SOURCES + offset_of!(Sources, cpu);
/// Offset in [`Thread`] of the address of the kernel's page, in bytes.
const PAGE: usize = SOURCES + offset_of!(Sources, page) + page::AT;

/// Offset in a record of a field of its first column, in bytes.
macro_rules! timer {
    ($field:ident) => {
        offset_of!(Record, first) + offset_of!(Column, $field)
    };
}

/// Defines the stub `$name`. `$before` runs once, before the assembly fast path `$quick`. If that
/// cannot finish, the compiled functions `$fast` and then `$slow` are called. `$third` loads the
/// third argument of `$fast`. `$resume` continues if `$fast` has found a walk. The operands of the
/// parts that not all stubs have are in braces.
macro_rules! stub {
    (
        $(#[$doc:meta])* $name:ident, $before:expr, $quick:expr, $third:expr, $resume:expr, $fast:path, $slow:path,
        { $($operand:ident = $kind:ident $value:expr,)* }
    ) => {
        $(#[$doc])*
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() {
            naked_asm!(
            parts::save!(),
            $before,
            "3:",
            $quick,
            parts::compiled!($third),
            parts::restore!(),
            parts::found!($resume),
            parts::slow!(),
            parts::align!(),
            fast = sym $fast,
            slow = sym $slow,
            trial = sym trial::calls,
            pushed = const PUSHED,
            way_back = const SLOT - 16,
            direction = const DIRECTION,
            to_bit_30 = const 30 - DIRECTION.trailing_zeros(),
            id = const ID,
            found = const FOUND,
            run_found = const offset_of!(Thread, walker) + offset_of!(Walker, found),
            rbx = const offset_of!(Thread, saved) + offset_of!(Saved, others),
            rbp = const offset_of!(Thread, saved) + offset_of!(Saved, fp),
            r12 = const offset_of!(Thread, saved) + offset_of!(Saved, others) + size_of::<u64>(),
            saved_rsp = const offset_of!(Thread, saved_sp),
            vectors = const VECTORS,
            private_stack = const offset_of!(Thread, private_stack),
            since = const offset_of!(Thread, meter) + offset_of!(Meter, since),
            blocking = const offset_of!(Thread, meter) + offset_of!(Meter, blocking),
            most_of_end = const MOST_OF_END,
            since_lock = const offset_of!(Thread, meter) + offset_of!(Meter, lock),
            signal_mask = const offset_of!(Thread, signal_mask),
            block_signals = sym sys::block_signals,
            restore_signals = sym sys::restore_signals,
            slot = const SLOT,
            // Data that every call reads.
            alive = sym ipath_alive,
            alive_word = const ALIVE as i32,
            parameters = sym ipath_parameters,
            rdfsbase = const offset_of!(Parameters, reads_tp),
            registry = sym REGISTRY,
            registry_shift = const registry::HASH_SHIFT,
            hash = const hash::MULTIPLIER,
            busy = const offset_of!(Thread, busy),
            busy_after = const offset_of!(Thread, busy_after),
            tid_from_fs = const offset_of!(Thread, tid_from_tp),
            tid = const offset_of!(Thread, tid),
            probes = sym ipath_probes,
            // The innermost activation, and its function.
            top = const offset_of!(Thread, calls) + offset_of!(Calls, top),
            at = const offset_of!(Activation, slot),
            function = const offset_of!(Activation, function),
            depths = const offset_of!(Thread, calls) + offset_of!(Calls, depths),
            nested = const offset_of!(Activation, nested),
            record = const offset_of!(Activation, record),
            generation = const offset_of!(Activation, generation),
            outermost = const offset_of!(Activation, outermost),
            start = const offset_of!(Activation, start),
            kind = const offset_of!(Probe, kind),
            // The measurements of the call.
            way = const offset_of!(RecordHead, way),
            timed = const way::TIMED,
            steady = const way::STEADY,
            timed_result = const way::TIMED_RESULT,
            // CPU time.
            ahead = const offset_of!(Activation, ahead),
            nested_cpu = const offset_of!(Activation, nested_cpu),
            page = const PAGE,
            lock = const page::LOCK,
            cpu_lock = const CPU + cpu::LOCK,
            cpu_offset = const CPU + offset_of!(Cpu, offset),
            cpu_asked = const CPU + offset_of!(Cpu, asked),
            fresh = const cpu::FRESH,
            // A value and its location.
            ret = const RETURN,
            details = sym ipath_details,
            register = const ValueLocation::REGISTER,
            not_register = const !(ValueLocation::REGISTER as i32),
            half = const ValueLocation::HALF,
            signed_half = const ValueLocation::SIGNED_HALF,
            // The columns of the value.
            segment = const offset_of!(Parameters, segment),
            second = sym ipath_second_column,
            base = const offset_of!(SecondColumn, base),
            column = const size_of::<Column>(),
            of_sum = const offset_of!(Column, sum),
            of_upper = const offset_of!(Column, exclusive),
            of_min = const offset_of!(Column, min),
            of_max = const offset_of!(Column, max),
            of_first_bucket = const offset_of!(Column, first_bucket),
            of_buckets = const offset_of!(Column, buckets),
            of_histogram = const offset_of!(Column, histogram),
            buckets = const INLINE_BUCKETS,
            histograms = const offset_of!(Header, areas)
                + AREA_HISTOGRAMS * size_of::<Area>()
                + offset_of!(Area, offset),
            histogram_len = const size_of::<Histogram>(),
            histogram_bits = const size_of::<Histogram>().trailing_zeros(),
            often = const record::OFTEN - 1,
            sequence = const offset_of!(RecordHead, sequence),
            full = const record::FULL - 1,
            coroutines = sym ipath_coroutines,
            corrects = const offset_of!(Parameters, corrects),
            overhead = const offset_of!(Thread, calls) + offset_of!(Calls, overhead),
            $($operand = $kind $value,)*
            );
        }
    };
}

/// Offset in [`Thread`] of the frame pointer at the entry of a call, in bytes.
const ENTRY_RBP: usize = offset_of!(Thread, walker) + offset_of!(Walker, entry_fp);

/// Defines a stub for entries and the starts of spans, as `stub!` does.
macro_rules! entry_stub {
    (
        $(#[$doc:meta])* $name:ident, $before:expr, $quick:expr, $call:expr, $fast:path, $slow:path,
        { $($operand:ident = $kind:ident $value:expr,)* }
    ) => {
        stub!(
            $(#[$doc])*
            $name,
            $before,
            $quick,
            "mov rdx, rbp", // third argument: the frame pointer
            concat!(
                "jmp 27b", // the thread's run has the result of the walk
                quick::entry::more!(),
                parts::enter!()
            ),
            $fast,
            $slow,
    {
        enter = sym ipath_enter,
        counted = const way::COUNTED,
        argument = const way::ARGUMENT,
        timed_argument = const way::TIMED_ARGUMENT,
        first = const offset_of!(Record, first),
        arguments = const quick::ARGUMENTS,
        inside_steady = const offset_of!(Costs, inside_steady),
        inside_argument = const offset_of!(Costs, inside_argument),
        call = const $call,
        low = const offset_of!(Thread, walker) + offset_of!(Walker, quick) + offset_of!(StackRange, low),
        high = const offset_of!(Thread, walker) + offset_of!(Walker, quick) + offset_of!(StackRange, high),
        quick_calls = const offset_of!(Thread, walker) + offset_of!(Walker, quick_calls),
        // Cached walks.
        memo = const thread::MEMO,
        memo_shift = const memo::HASH_SHIFT,
        memo_entry = const size_of::<Entry>(),
        memo_entry_bits = const size_of::<Entry>().trailing_zeros(),
        memo_probes = const memo::PROBES as usize * size_of::<Entry>(),
        run = const size_of::<Run>(),
        run_record = const offset_of!(Run, record),
        run_stack = const offset_of!(Run, stack),
        elsewhere = const ELSEWHERE,
        checks_stacks = const offset_of!(Parameters, checks_stacks),
        run_cost = const offset_of!(Run, cost),
        costs = sym ipath_costs,
        inside = const offset_of!(Costs, inside),
        // The record.
        entered = const offset_of!(RecordHead, entered),
        stack = const offset_of!(Activation, stack),
        next = const offset_of!(Activation, next),
        epoch = sym ipath_epoch,
        $($operand = $kind $value,)*
    }
        );
    };
}

entry_stub!(
    /// Called by the hook of an entry.
    ipath_entry_stub,
    "",
    quick::entry::entry!(key_of_slot),
    Kind::Call as u8,
    ipath_remember_walk,
    ipath_slow_entry,
    { entry_rbp = const ENTRY_RBP, }
);
entry_stub!(
    /// [`ipath_entry_stub`] for paths of measured functions only.
    ipath_called_stub,
    "",
    quick::entry::entry!(key_of_caller),
    Kind::Call as u8,
    ipath_remember_walk,
    ipath_slow_entry,
    { last = const memo::LAST, last_at = const memo::LAST_AT, }
);
entry_stub!(
    /// [`ipath_entry_stub`] with verification: repeats every cached walk.
    ipath_verified_entry_stub,
    parts::verify!(),
    quick::entry::entry!(key_of_slot),
    Kind::Call as u8,
    ipath_remember_walk,
    ipath_slow_entry,
    { entry_rbp = const ENTRY_RBP, verify = sym ipath_verify_walk, }
);

/// Defines a stub for exits and the ends of spans, as `stub!` does.
macro_rules! exit_stub {
    (
        $(#[$doc:meta])* $name:ident, $quick:expr, $fifth:expr, $fast:path, $slow:path,
        { $($operand:ident = $kind:ident $value:expr,)* }
    ) => {
        stub!(
            $(#[$doc])*
            $name,
            "",
            $quick,
            concat!(
                "
    mov rdx, rdi                       // third argument: the time of the exit
                ",
                $fifth
            ),
            "ud2", // unreachable: exits look up no walk
            $fast,
            $slow,
    {
        prev = const offset_of!(Activation, prev),
        now = const offset_of!(Thread, now),
        // Lent activations.
        lent = const offset_of!(Activation, lent),
        lending = const (LENDING as u32) << NUMBER_SHIFT,
        costs = sym ipath_costs,
        cost_lent = const offset_of!(Costs, lent),
        cost_lent_after = const offset_of!(Costs, lent_after),
        // The record.
        scale = const offset_of!(Parameters, scale),
        closed = const offset_of!(RecordHead, closed),
        sum = const timer!(sum),
        min = const timer!(min),
        max = const timer!(max),
        sum_outermost = const timer!(outermost),
        exclusive = const timer!(exclusive),
        first_bucket = const timer!(first_bucket),
        bucket = const timer!(buckets),
        // Its histogram in the pool.
        histogram = const timer!(histogram),
        cpu_last = const CPU + offset_of!(Cpu, last),
        scratch = const offset_of!(Thread, scratch),
        result = const SLOT - 8,
        $($operand = $kind $value,)*
    }
        );
    };
}

exit_stub!(
    /// Called by the hook of an exit by a return.
    ipath_exit_stub,
    quick::exit::exit!(""),
    "",
    ipath_fast_exit,
    ipath_slow_exit,
    {
        filters = const offset_of!(Parameters, filters),
        cost_counted = const offset_of!(Costs, counted),
        stack_low = const STACK + offset_of!(StackRange, low),
        stack_high = const STACK + offset_of!(StackRange, high),
    }
);
exit_stub!(
    /// Called by the hook of an exit by a tail call.
    ipath_tail_stub,
    quick::exit::exit!("inc qword ptr [r9 + {tail}]"),
    "",
    ipath_fast_tail_exit,
    ipath_slow_tail_exit,
    {
        tail = const offset_of!(RecordHead, tail),
        filters = const offset_of!(Parameters, filters),
        cost_counted = const offset_of!(Costs, counted),
        stack_low = const STACK + offset_of!(StackRange, low),
        stack_high = const STACK + offset_of!(StackRange, high),
    }
);
exit_stub!(
    /// Called by the hook of a return of a function that is not measured.
    ipath_ender_stub,
    quick::exit::ender!(""),
    "",
    ipath_fast_ender,
    ipath_slow_ender,
    {
        cost_ender = const offset_of!(Costs, ender),
        cost_ender_after = const offset_of!(Costs, ender_after),
    }
);
exit_stub!(
    /// Called by the hook of an exit by a tail call of a function that is not measured.
    ipath_ender_tail_stub,
    quick::exit::ender!("inc qword ptr [r9 + {tail}]"),
    "",
    ipath_fast_ender_tail,
    ipath_slow_ender_tail,
    {
        cost_ender = const offset_of!(Costs, ender),
        cost_ender_after = const offset_of!(Costs, ender_after),
        tail = const offset_of!(RecordHead, tail),
    }
);
exit_stub!(
    /// Called by the hook of an exit by a tail call to a function whose exits end lent activations.
    ipath_lend_stub,
    quick::exit::lend!("inc qword ptr [r9 + {tail}]"),
    "",
    ipath_fast_lend,
    ipath_slow_lend,
    {
        lends = const (LENDS as u32) << NUMBER_SHIFT,
        most_lent = const MOST_LENT,
        tail = const offset_of!(RecordHead, tail),
        filters = const offset_of!(Parameters, filters),
        cost_counted = const offset_of!(Costs, counted),
        stack_low = const STACK + offset_of!(StackRange, low),
        stack_high = const STACK + offset_of!(StackRange, high),
    }
);

/// Defines a stub for the starts of spans or of timed paths. `$location` loads the location of the
/// frame.
macro_rules! span_stub {
    (
        $(#[$doc:meta])* $name:ident, $location:ident, $before:expr, ($fast:path, $slow:path),
        { $($operand:ident = $kind:ident $value:expr,)* }
    ) => {
        entry_stub!(
            $(#[$doc])*
            $name,
            $before,
            quick::span::begin!($location),
            Kind::Call as u8 | SPAN,
            $fast,
            $slow,
    {
        entry_rbp = const ENTRY_RBP,
        red_zone = const RED_ZONE,
        by_rbp = const BY_FP,
        rbp_shift = const FP_SHIFT,
        slot_shift = const SLOT_SHIFT,
        take_turns = sym ipath_doubt,
        turns = const TURNS,
        $($operand = $kind $value,)*
    }
        );
    };
}

span_stub!(
    /// Called by the hook of the start of a span.
    ipath_span_stub,
    by_number,
    "",
    (ipath_remember_span, ipath_slow_span),
    {}
);
span_stub!(
    /// [`ipath_span_stub`] with verification: repeats every cached walk.
    ipath_verified_span_stub,
    by_number,
    parts::verify!(),
    (ipath_remember_span, ipath_slow_span),
    { verify = sym ipath_verify_point, }
);
span_stub!(
    /// Called by the hook of the start of a timed path.
    ipath_timed_path_stub,
    by_hook,
    "",
    (ipath_remember_path, ipath_slow_path),
    {
        to_row = const TO_ROW,
        standing = const offset_of!(Row, standing),
    }
);
span_stub!(
    /// [`ipath_timed_path_stub`] with verification: repeats every cached walk.
    ipath_verified_timed_path_stub,
    by_hook,
    parts::verify!(),
    (ipath_remember_path, ipath_slow_path),
    {
        verify = sym ipath_verify_path,
        to_row = const TO_ROW,
        standing = const offset_of!(Row, standing),
    }
);
exit_stub!(
    /// Called by the hook of the end of a span.
    ipath_span_end_stub,
    quick::span::end!(),
    "mov r8, rbp", // fifth argument: the frame pointer
    ipath_fast_span_end,
    ipath_slow_span_end,
    {
        red_zone = const RED_ZONE,
        by_rbp = const BY_FP,
        slot_shift = const SLOT_SHIFT,
        filters = const offset_of!(Parameters, filters),
        cost_counted = const offset_of!(Costs, counted),
        stack_low = const STACK + offset_of!(StackRange, low),
        stack_high = const STACK + offset_of!(StackRange, high),
    }
);

/// Called by a hook without work.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ipath_idle_stub() {
    naked_asm!(
        "ret", // return to the trampoline
    );
}
