//! Restartable sequences, rseq(2): code that the kernel lets begin anew when its thread was
//! interrupted in it, since what it read may have changed.
//!
//! The kernel looks when the thread goes on. One that makes a system call for us goes on elsewhere
//! first, the kernel forgets the sequence, and the thread would come back into the middle of it. So
//! it is led to where the kernel would have it go, before anything else.

use std::mem::size_of;
use std::ops::Range;

use patcher::Avma;

use super::{StoppedThread, TraceeError, sys};
use crate::process::Memory;

/// Leads a thread out of the sequence it was stopped in, if it was in one.
pub fn leave(thread: &mut StoppedThread, memory: &Memory) -> Result<(), TraceeError> {
    // Kernels without such sequences do not know the request.
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

/// Offset in `struct rseq` (linux/rseq.h) of the address of the current sequence's descriptor.
const CURRENT: u64 = 8;

/// The instructions of a sequence and where it begins anew: `struct rseq_cs`, two 32-bit numbers,
/// then start, length and abort handler.
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
