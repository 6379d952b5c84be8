//! How long the thread has been runnable and waited for a processor, ns: the second number of
//! /proc/PID/task/TID/schedstat (Documentation/scheduler/sched-stats.rst).

use super::answer::{ANSWER, bytes, number_in};
use crate::os::sys::File;

/// What the kernel says now.
pub fn read(answer: &mut [u64; ANSWER]) -> Option<u64> {
    let file = File::open(c"/proc/thread-self/schedstat")?;
    let text = bytes(answer);
    let len = file.read(text)?;
    number_in(text.get(..len)?, 1)
}
