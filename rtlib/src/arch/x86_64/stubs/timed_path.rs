//! The stub of the ends of timed paths. Their hooks step over the red zone, and find their row by
//! the instruction behind the call.

use core::arch::naked_asm;
use core::mem::{offset_of, size_of};

use unwind::Saved;

use super::super::quick::{self, SLOT};
use super::super::stored::VECTORS;
use super::{DIRECTION, ID, MOST_OF_END, PAGE, PUSHED, parts, trial};
use crate::calls::Calls;
use crate::calls::meter::Meter;
use crate::os::sys;
use crate::probe::next::FOUND;
use crate::probe::timed_path::{ipath_fast_path_end, ipath_slow_path_end};
use crate::sources::page;
use crate::thread::Thread;

/// Called by the hook of the end of a timed path. The number of the path decides on its record, so
/// compiled code ends it.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ipath_timed_path_end_stub() {
    naked_asm!(
        parts::save!(),
        "3:",
        quick::thread::now!(), // read the clock first
        parts::compiled!(
            "
    mov rdx, rdi                       // third argument: the time of the end
    mov r8, rbp                        // fifth argument: the frame pointer
            "
        ),
        parts::restore!(),
        "
9:  ud2                                // unreachable: ends look up no walk
        ",
        parts::slow!(),
        parts::align!(),
        fast = sym ipath_fast_path_end,
        slow = sym ipath_slow_path_end,
        trial = sym trial::calls,
        pushed = const PUSHED,
        way_back = const SLOT - 16,
        direction = const DIRECTION,
        to_bit_30 = const 30 - DIRECTION.trailing_zeros(),
        id = const ID,
        found = const FOUND,
        rbx = const offset_of!(Thread, saved) + offset_of!(Saved, others),
        rbp = const offset_of!(Thread, saved) + offset_of!(Saved, fp),
        r12 = const offset_of!(Thread, saved) + offset_of!(Saved, others) + size_of::<u64>(),
        saved_rsp = const offset_of!(Thread, saved_sp),
        vectors = const VECTORS,
        private_stack = const offset_of!(Thread, private_stack),
        signal_mask = const offset_of!(Thread, signal_mask),
        block_signals = sym sys::block_signals,
        restore_signals = sym sys::restore_signals,
        busy = const offset_of!(Thread, busy),
        busy_after = const offset_of!(Thread, busy_after),
        since = const offset_of!(Thread, meter) + offset_of!(Meter, since),
        blocking = const offset_of!(Thread, meter) + offset_of!(Meter, blocking),
        most_of_end = const MOST_OF_END,
        since_lock = const offset_of!(Thread, meter) + offset_of!(Meter, lock),
        overhead = const offset_of!(Thread, calls) + offset_of!(Calls, overhead),
        page = const PAGE,
        lock = const page::LOCK,
    );
}
