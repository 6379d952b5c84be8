//! How long the thread has waited for block devices, ns: field 42 of /proc/PID/task/TID/stat (proc_pid_stat(5)), which
//! counts hundredths of a second where the kernel accounts for delays (sysctl kernel.task_delayacct).

use super::answer::{ANSWER, bytes, number_in};
use crate::os::sys::File;

/// What the kernel says now.
pub fn read(answer: &mut [u64; ANSWER]) -> Option<u64> {
    /// Counted from what follows the name, which is field 3.
    const DELAYS: usize = 42 - 3;
    const NS: u64 = 10_000_000;
    let file = File::open(c"/proc/thread-self/stat")?;
    let text = bytes(answer);
    let len = file.read(text)?;
    let text = text.get(..len)?;
    // A name may hold what it likes.
    let name_end = text.iter().rposition(|&byte| byte == b')')?;
    number_in(text.get(name_end + 1..)?, DELAYS)?.checked_mul(NS)
}
