//! Waits before a thread leaves the program, by execve(2) or by exit: the watching command may need
//! to trace the thread first, or to stop tracing it.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use abi::probe::Kind;
use abi::segment::{DEPARTS_BY_CHECK, DEPARTS_BY_EXEC, DEPARTS_BY_EXIT, Header, departure};

use crate::arch::clock;
use crate::arch::stored::{FIRST_ARGUMENT, LAST_ARGUMENT};
use crate::os::{shared, sys};

/// Announces the departure and waits until the command has acted on it. Returns at once if no
/// command watches.
///
/// A child that shares the memory (vfork(2)) does not wait, because it leaves no program of its
/// own.
///
/// # Safety
/// `slot` is the address of the call's return address. The stub has stored the registers at its
/// entry.
#[cold]
#[inline(never)]
#[cfg_attr(ipath_image, unsafe(link_section = ".text.fast"))]
pub unsafe fn announce(kind: Kind, slot: u64) {
    if kind != Kind::Execs {
        // SAFETY: see above. These functions have at most one argument.
        unsafe { clear_arguments(slot) };
    }
    if !sys::may_call() || !shared::is_mapped() || sys::getpid() != sys::own_pid() {
        return;
    }
    let why = match kind {
        Kind::Exits => DEPARTS_BY_EXIT,
        Kind::Checks => DEPARTS_BY_CHECK,
        _ => DEPARTS_BY_EXEC,
    };
    await_command(departure(why, sys::gettid()));
}

/// Announces `own` once no other thread is departing. Waits until the command has acted on it or no
/// command watches. One loop in a function of its own serves both waits, to use little of the
/// program's stack.
#[inline(never)]
#[cfg_attr(ipath_image, unsafe(link_section = ".text.fast"))]
fn await_command(own: u64) {
    let mut is_announced = false;
    loop {
        let departing = &shared::header().departing;
        let now = departing.load(Acquire);
        if is_announced && now != own {
            return;
        }
        if !is_announced {
            let free = departing.compare_exchange(0, own, AcqRel, Relaxed);
            // A signal handler of this thread may have announced it already.
            is_announced = free.is_ok() || free == Err(own);
        }
        if !is_watched(shared::header()) {
            if is_announced {
                // Fails if the command has acted meanwhile.
                let _ = departing.compare_exchange(own, 0, AcqRel, Relaxed);
            }
            return;
        }
        if is_announced {
            sys::wake_others(&shared::header().asked_used);
        }
        let awaited = if is_announced { own } else { now };
        sys::sleep_by(departing, awaited as u32);
    }
}

/// Clears the stored registers of all arguments after the first. A leak check would take an address
/// left on the stack for a reference.
///
/// # Safety
/// As for [`announce`], for a function with at most one argument.
unsafe fn clear_arguments(slot: u64) {
    let mut at = slot - FIRST_ARGUMENT + 8;
    while at <= slot - LAST_ARGUMENT {
        // SAFETY: see above; the stub restores a register from this word.
        unsafe { (at as *mut u64).write_volatile(0) };
        at += 8;
    }
}

/// True if a command has declared that it watches, and is alive.
fn is_watched(header: &Header) -> bool {
    let by = header.watched_by.load(Relaxed) as u32;
    clock::now() < header.watched_until.load(Acquire) && (by == 0 || !sys::has_ended(by))
}
