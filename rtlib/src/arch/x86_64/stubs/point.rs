//! The stub of points. Their hooks step over the red zone. So the stack position that is the slot
//! at an entry is only the stub's start here.

use core::arch::naked_asm;
use core::mem::{offset_of, size_of};

use abi::arch::stack::RED_ZONE;
use abi::image::{ALIVE, Parameters};
use abi::point::{BY_FP, FP_SHIFT, SLOT_SHIFT};
use abi::segment::RecordHead;
use unwind::Saved;

use super::super::quick::{self, SLOT};
use super::super::stored::VECTORS;
use super::{DIRECTION, ENTRY_RBP, ID, MOST_OF_END, PAGE, PUSHED, parts, trial};
use crate::calls::Calls;
use crate::calls::meter::Meter;
use crate::code::epoch::ipath_epoch;
use crate::os::hash;
use crate::os::parameters::{ipath_alive, ipath_details, ipath_parameters, ipath_probes};
use crate::os::sys;
use crate::probe::next::FOUND;
use crate::probe::point::{ipath_remember_point, ipath_slow_point, ipath_verify_point};
use crate::sources::page;
use crate::thread::registry::{self, REGISTRY};
use crate::thread::{self, Thread};
use crate::walk::memo::{self, Entry, Run};
use crate::walk::{StackRange, Walker};

/// Defines the stub `$name` for points. `$before` runs once, before the assembly fast path.
macro_rules! point_stub {
    ($(#[$doc:meta])* $name:ident, $before:expr, { $($operand:ident = $kind:ident $value:expr,)* }) => {
        $(#[$doc])*
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() {
            naked_asm!(
                parts::save!(),
                $before,
                "3:",
                quick::point::point!(),
                parts::compiled!(
                    "mov rdx, rbp" // third argument: the frame pointer
                ),
                parts::restore!(),
                parts::found!(
                    "jmp 27b" // the run has the result of the walk
                ),
                parts::slow!(),
                parts::align!(),
                fast = sym ipath_remember_point,
                slow = sym ipath_slow_point,
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
                // The frame.
                details = sym ipath_details,
                red_zone = const RED_ZONE,
                by_rbp = const BY_FP,
                rbp_shift = const FP_SHIFT,
                slot_shift = const SLOT_SHIFT,
                low = const offset_of!(Thread, walker) + offset_of!(Walker, quick) + offset_of!(StackRange, low),
                high = const offset_of!(Thread, walker) + offset_of!(Walker, quick) + offset_of!(StackRange, high),
                quick_calls = const offset_of!(Thread, walker) + offset_of!(Walker, quick_calls),
                entry_rbp = const ENTRY_RBP,
                epoch = sym ipath_epoch,
                // Cached walks.
                memo = const thread::MEMO,
                memo_shift = const memo::HASH_SHIFT,
                memo_entry = const size_of::<Entry>(),
                memo_entry_bits = const size_of::<Entry>().trailing_zeros(),
                memo_probes = const memo::PROBES as usize * size_of::<Entry>(),
                run = const size_of::<Run>(),
                run_record = const offset_of!(Run, record),
                run_cost = const offset_of!(Run, cost),
                overhead = const offset_of!(Thread, calls) + offset_of!(Calls, overhead),
                since = const offset_of!(Thread, meter) + offset_of!(Meter, since),
                blocking = const offset_of!(Thread, meter) + offset_of!(Meter, blocking),
                most_of_end = const MOST_OF_END,
                since_lock = const offset_of!(Thread, meter) + offset_of!(Meter, lock),
                page = const PAGE,
                lock = const page::LOCK,
                // The record.
                entered = const offset_of!(RecordHead, entered),
                $($operand = $kind $value,)*
            );
        }
    };
}

point_stub!(
    /// Called by the hook of a point.
    ipath_point_stub,
    "",
    {}
);
point_stub!(
    /// [`ipath_point_stub`] with verification: repeats every cached walk.
    ipath_verified_point_stub,
    parts::verify!(),
    { verify = sym ipath_verify_point, }
);
