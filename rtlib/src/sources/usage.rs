//! Counts of the thread from getrusage(2).

use super::answer::ANSWER;
use crate::os::sys;

/// Offsets in `struct rusage`, in words.
const MINOR_FAULTS: usize = 8;
const MAJOR_FAULTS: usize = 9;
const VOLUNTARY_SWITCHES: usize = 16;
const INVOLUNTARY_SWITCHES: usize = 17;

/// The calling thread's page faults that read from a device; `None` if the kernel refuses.
pub fn major_faults(answer: &mut [u64; ANSWER]) -> Option<u64> {
    sys::thread_usage(answer.first_chunk_mut()?)?;
    Some(answer[MAJOR_FAULTS])
}

/// All page faults of the calling thread; `None` if the kernel refuses.
pub fn page_faults(answer: &mut [u64; ANSWER]) -> Option<u64> {
    sum(answer, MINOR_FAULTS, MAJOR_FAULTS)
}

/// The calling thread's context switches, voluntary and involuntary; `None` if the kernel refuses.
pub fn context_switches(answer: &mut [u64; ANSWER]) -> Option<u64> {
    sum(answer, VOLUNTARY_SWITCHES, INVOLUNTARY_SWITCHES)
}

/// The sum of words `a` and `b` of the calling thread's `struct rusage`; `None` if the kernel
/// refuses.
fn sum(answer: &mut [u64; ANSWER], a: usize, b: usize) -> Option<u64> {
    sys::thread_usage(answer.first_chunk_mut()?)?;
    Some(answer[a].wrapping_add(answer[b]))
}
