//! The time that the thread was runnable and waited for a processor, in ns: the second number of
//! /proc/PID/task/TID/schedstat (Documentation/scheduler/sched-stats.rst).

use super::answer::{ANSWER, bytes, number_in};
use crate::os::sys::File;

/// The time that the calling thread has waited for a processor so far, in ns; `None` if the file
/// cannot be read.
pub fn read(answer: &mut [u64; ANSWER]) -> Option<u64> {
    let file = File::open(c"/proc/thread-self/schedstat")?;
    let text = bytes(answer);
    let len = file.read(text)?;
    number_in(text.get(..len)?, 1)
}
