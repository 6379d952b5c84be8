//! Restartable sequences (rseq(2)): code that the kernel restarts if its thread is interrupted in
//! it, because data that it read may have changed.
//!
//! The kernel checks when the thread resumes. A thread that makes a system call for ipath resumes
//! elsewhere first, so the kernel forgets the sequence. The thread would then return into the
//! middle of it. So it is moved to the abort handler, where the kernel would have sent it, before
//! anything else.

use std::mem::size_of;
use std::ops::Range;

use patcher::Avma;

use super::{StoppedThread, TraceeError, sys};
use crate::process::Memory;

/// Moves a thread to the abort handler of the sequence that it was stopped in, if any.
///
/// # Errors
/// The thread's registers cannot be set.
pub fn leave(thread: &mut StoppedThread, memory: &Memory) -> Result<(), TraceeError> {
    // Kernels without restartable sequences reject the request.
    let Some(area) = sys::sequence_area(thread.tid()) else {
        return Ok(());
    };
    let Some(descriptor) = word(memory, area, CURRENT).filter(|&at| at != 0) else {
        return Ok(());
    };
    match sequence(memory, Avma(descriptor)) {
        Some((code, abort)) if code.contains(&thread.pc()) => thread.set_pc(abort),
        _ => Ok(()),
    }
}

/// The offset in `struct rseq` (linux/rseq.h) of the address of the current sequence's descriptor.
const CURRENT: u64 = 8;

/// The instructions of a sequence and its abort handler. The layout is `struct rseq_cs`: two 32-bit
/// numbers, then start, length and abort handler. `None` if they cannot be read.
fn sequence(memory: &Memory, at: Avma) -> Option<(Range<Avma>, Avma)> {
    let [start, len, abort] = [8, 16, 24].map(|offset| word(memory, at, offset));
    let (start, abort) = (Avma(start?), Avma(abort?));
    Some((start..Avma(start.0.checked_add(len?)?), abort))
}

fn word(memory: &Memory, at: Avma, offset: u64) -> Option<u64> {
    let at = Avma(at.0.checked_add(offset)?);
    let bytes = memory.read_vec(at, size_of::<u64>()).ok()?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}
