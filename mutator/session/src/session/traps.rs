//! Breakpoints instead of jumps: the handler of their signal, and the table of their targets.
//!
//! The handler and the table's entries stay as long as the session: a thread that has hit a
//! breakpoint may enter the handler after the breakpoint is gone.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use abi::arch::signal_frame::SA_RESTORER;
use abi::image::{
    SYMBOL_TRAP_ACTIONS, SYMBOL_TRAP_HANDLER, SYMBOL_TRAP_RESTORER, SYMBOL_TRAPS, TRAP_BUCKETS,
    trap_bucket,
};
use patcher::Avma;

use super::locked::Locked;
use super::runtime_memory::read;
use super::{Candidate, Selection, SessionError};
use crate::segment::{Document, SiteDoc};
use ipath_target::tracee::{CallCode, Remote, Stopped, TRAP_BIT};

/// The mask of signals 32 and 33, which a C library reserves and removes from every mask that a
/// program sets. So a thread that blocks one of them blocks SIGTRAP only for a moment: the library
/// is creating or ending a thread, or the runtime is recording a call. (At the end of a thread,
/// glibc's `start_thread` does not block 33, SIGSETXID.)
const OF_C_LIBRARY: u64 = 3 << 31;

/// The size of an address in bytes.
const ADDRESS: u64 = size_of::<AtomicU64>() as u64;
/// The size of the kernel's `struct sigaction` in bytes.
const ACTION: u64 = 4 * ADDRESS;
/// The size of a signal mask in bytes.
const MASK_BYTES: u64 = 8;

impl Selection {
    /// Permits breakpoints where no other tactic works.
    pub fn allow_traps(&mut self) {
        for candidate in &mut self.candidates {
            candidate.traps = true;
            candidate.try_traps();
        }
        for pointed in &mut self.points {
            pointed.traps = true;
        }
    }
}

impl Candidate {
    /// Replans refused parts with breakpoints, if permitted.
    pub(super) fn try_traps(&mut self) {
        if self.traps && self.plan.refused().is_some() {
            let (image, context) = (self.image.image(), self.image.context());
            self.plan.allow_traps(image, context);
        }
    }
}

/// Adds the targets of breakpoints to the handler's table. Fails with [`SessionError::TooMany`] if
/// the table has no room.
pub(super) fn fill_traps(locked: &mut Locked<'_>, ids: &[usize]) -> Result<(), SessionError> {
    let functions = ids.iter().map(|&id| &locked.document.functions[id]);
    let traps: Vec<&SiteDoc> = functions
        .flat_map(|f| &f.sites)
        .filter(|s| s.trap)
        .collect();
    if traps.is_empty() {
        return Ok(());
    }
    let table = locked.symbol(SYMBOL_TRAPS)?;
    let bytes = read(locked.space.memory(), table, TRAP_BUCKETS * 16)?;
    let word = |b: &[u8]| b.try_into().map_or(0, u64::from_le_bytes);
    let known = bytes.chunks_exact(16);
    let mut addresses: Vec<u64> = known.map(|trap| word(&trap[..8])).collect();
    let used = addresses.iter().filter(|&&a| a != 0).count();
    // A lookup without a result ends at a free bucket.
    if used + traps.len() > TRAP_BUCKETS * 3 / 4 {
        return Err(SessionError::TooMany);
    }
    let mut writes = Vec::new();
    for site in traps {
        let address = site.window.start.0;
        let mut bucket = trap_bucket(address);
        while addresses[bucket] != 0 && addresses[bucket] != address {
            bucket = (bucket + 1) % TRAP_BUCKETS;
        }
        addresses[bucket] = address;
        let at = table.plus(bucket as u64 * 16);
        let leads_to = site.trampoline.start.0.to_le_bytes();
        writes.push((at.plus(ADDRESS), leads_to.to_vec()));
        writes.push((at, address.to_le_bytes().to_vec()));
    }
    locked.write_own(&writes)
}

/// Installs the handler if any of these functions has a breakpoint and it is not installed yet.
/// Fails if a thread blocks SIGTRAP, or if the runtime must make no system calls.
pub(super) fn handle_traps(
    locked: &mut Locked<'_>,
    code: &CallCode,
    stopped: &mut Stopped,
    ids: &[usize],
) -> Result<(), SessionError> {
    let functions = ids.iter().map(|&id| &locked.document.functions[id]);
    let wanted = functions.flat_map(|f| &f.sites).any(|s| s.trap);
    if !wanted {
        return Ok(());
    }
    if locked.document.quiet {
        let why = "breakpoints need system calls, which the runtime may not make in it";
        return Err(SessionError::Held(why.to_owned()));
    }
    for thread in stopped.threads() {
        let mask = thread.signal_mask()?;
        if mask & TRAP_BIT != 0 {
            return Err(SessionError::TrapBlocked {
                tid: thread.tid(),
                passes: mask & OF_C_LIBRARY != 0,
            });
        }
    }
    if locked.document.trap_handler {
        return Ok(());
    }
    let flags = (libc::SA_SIGINFO | libc::SA_ONSTACK) as u64 | SA_RESTORER;
    let handler = locked.symbol(SYMBOL_TRAP_HANDLER)?;
    let restorer = locked.symbol(SYMBOL_TRAP_RESTORER)?;
    let new = locked.symbol(SYMBOL_TRAP_ACTIONS)?;
    let words = [handler.0, flags, restorer.0, u64::MAX];
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    let written = locked.own.write(locked.space.memory(), new, &bytes);
    written.map_err(|e| SessionError::Memory("write", new, e))?;
    locked.document.trap_handler = true;
    locked.segment.write_document(&locked.document)?;
    let mut remote = Remote::new(code, stopped)?;
    sigaction(&mut remote, new, new.plus(ACTION))
}

/// Restores the previous action of SIGTRAP unless the program has changed it since. Returns true if
/// the handler was installed. Threads may then still be in it, on their way to the program's own.
/// Fails if the target cannot be changed.
pub(super) fn unhandle_traps(locked: &mut Locked<'_>) -> Result<bool, SessionError> {
    if !locked.document.trap_handler {
        return Ok(false);
    }
    let handler = locked.symbol(SYMBOL_TRAP_HANDLER)?;
    let actions = locked.symbol(SYMBOL_TRAP_ACTIONS)?;
    let space = Arc::clone(&locked.space);
    let memory = space.memory();
    let code = CallCode::find(&locked.process, &space.maps()?, memory)?;
    let put_back = |stopped: &mut Stopped| {
        let mut remote = Remote::new(&code, stopped)?;
        sigaction(&mut remote, Avma(0), actions)?;
        let now = read(memory, actions, MASK_BYTES as usize)?;
        if now == handler.0.to_le_bytes() {
            sigaction(&mut remote, actions.plus(ACTION), Avma(0))?;
        }
        Ok::<(), SessionError>(())
    };
    let mut stopped = locked.stop_all()?;
    let result = put_back(&mut stopped);
    let duration = stopped.resume()?;
    locked.note_stop("detach", duration);
    result?;
    locked.document.trap_handler = false;
    locked.segment.write_document(&locked.document)?;
    Ok(true)
}

/// The addresses after our breakpoints. A thread that has hit one is there until it enters the
/// handler.
pub(super) fn after_traps(document: &Document) -> Vec<Avma> {
    let sites = document.functions.iter().flat_map(|f| &f.sites);
    let traps = sites.filter(|s| s.trap);
    traps.map(|s| s.window.start.plus(1)).collect()
}

/// Sets and reads the action of SIGTRAP in the target. `new` and `old` are addresses in the target;
/// 0 for none.
fn sigaction(remote: &mut Remote<'_>, new: Avma, old: Avma) -> Result<(), SessionError> {
    let signal = libc::SIGTRAP as u64;
    let arguments = [signal, new.0, old.0, MASK_BYTES, 0, 0];
    remote.call("rt_sigaction", libc::SYS_rt_sigaction, arguments)?;
    Ok(())
}
