//! Waiting before a thread leaves the program, by execve(2) or at the process's exit: the command that watches may have to
//! trace the thread by then, or to stop tracing it.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use abi::probe::Kind;
use abi::segment::{DEPARTS_BY_CHECK, DEPARTS_BY_EXEC, DEPARTS_BY_EXIT, Header, departure};

use super::next::{FIRST_ARGUMENT, SIXTH_ARGUMENT};
use crate::arch::clock;
use crate::os::{shared, sys};

/// Announces the departure, and waits until the command has acted on it. Does not wait where no command watches.
///
/// A child that shares the memory (vfork(2)) leaves no program of its own, so it does not wait.
///
/// # Safety
/// `slot` is the address of the return address of the call, at whose entry the stub has stored the registers.
#[cold]
#[inline(never)]
#[cfg_attr(ipath_image, unsafe(link_section = ".text.fast"))]
pub unsafe fn announce(kind: Kind, slot: u64) {
    if kind != Kind::Execs {
        // SAFETY: the caller's promise. These functions have one argument at most.
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

/// Announces `own` once no other thread departs, and waits until the command has acted on it or none watches. One loop
/// for both waits, and a function of its own: so it takes little of the program's stack.
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
            // A signal handler of this very thread may have announced it already.
            is_announced = free.is_ok() || free == Err(own);
        }
        if !is_watched(shared::header()) {
            if is_announced {
                // It fails where the command has acted after all.
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

/// Clears what the stub has stored of the registers for arguments after the first. An address that is left on the stack counts as a use
/// of its memory when leaks are looked for.
///
/// # Safety
/// As for [`announce`], of a function with one argument at most.
unsafe fn clear_arguments(slot: u64) {
    let mut at = slot - FIRST_ARGUMENT + 8;
    while at <= slot - SIXTH_ARGUMENT {
        // SAFETY: the caller's promise: a word that the stub restores a register from.
        unsafe { (at as *mut u64).write_volatile(0) };
        at += 8;
    }
}

/// True if a command says that it looks, and lives.
fn is_watched(header: &Header) -> bool {
    let by = header.watched_by.load(Relaxed) as u32;
    clock::now() < header.watched_until.load(Acquire) && (by == 0 || !sys::has_ended(by))
}
