//! The time that the thread has waited for block devices, in ns: field 42 of
//! /proc/PID/task/TID/stat (proc_pid_stat(5)). It is counted in hundredths of a second, and only if
//! the kernel accounts for delays (sysctl kernel.task_delayacct).

use super::answer::{ANSWER, bytes, number_in};
use crate::os::sys::File;

/// The time that the calling thread has waited for block devices so far, in ns; `None` if the file
/// cannot be read.
pub fn read(answer: &mut [u64; ANSWER]) -> Option<u64> {
    /// Index of the field after the name. The first field after it is field 3.
    const DELAYS: usize = 42 - 3;
    const NS: u64 = 10_000_000;
    let file = File::open(c"/proc/thread-self/stat")?;
    let text = bytes(answer);
    let len = file.read(text)?;
    let text = text.get(..len)?;
    // The name may contain any character.
    let name_end = text.iter().rposition(|&byte| byte == b')')?;
    number_in(text.get(name_end + 1..)?, DELAYS)?.checked_mul(NS)
}
