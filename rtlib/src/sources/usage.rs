//! What getrusage(2) counts of the thread.

use super::answer::ANSWER;
use crate::os::sys;

/// Places in a `struct rusage`, in words.
const MINOR_FAULTS: usize = 8;
const MAJOR_FAULTS: usize = 9;
const VOLUNTARY_SWITCHES: usize = 16;
const INVOLUNTARY_SWITCHES: usize = 17;

/// Page faults for which a device was read.
pub fn major_faults(answer: &mut [u64; ANSWER]) -> Option<u64> {
    sys::thread_usage(answer.first_chunk_mut()?)?;
    Some(answer[MAJOR_FAULTS])
}

/// Page faults, with and without reading from a device.
pub fn page_faults(answer: &mut [u64; ANSWER]) -> Option<u64> {
    sum(answer, MINOR_FAULTS, MAJOR_FAULTS)
}

/// Context switches, of its own will and not.
pub fn context_switches(answer: &mut [u64; ANSWER]) -> Option<u64> {
    sum(answer, VOLUNTARY_SWITCHES, INVOLUNTARY_SWITCHES)
}

fn sum(answer: &mut [u64; ANSWER], a: usize, b: usize) -> Option<u64> {
    sys::thread_usage(answer.first_chunk_mut()?)?;
    Some(answer[a].wrapping_add(answer[b]))
}
