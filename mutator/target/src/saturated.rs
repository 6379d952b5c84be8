//! Machines with far more runnable threads than processors. Each thread, including a command's,
//! gets only a tiny share.

use crate::process::read_text;

/// A machine with this many runnable threads per processor is saturated.
const MANY: usize = 32;

/// With this many runnable threads per processor, even the highest nice priority is not enough.
/// Each of them waits a second or more between two turns of 3 ms.
const TOO_MANY: usize = 300;

/// The number of runnable threads per processor, rounded down. 0 if unknown.
fn load() -> usize {
    let text = read_text("/proc/loadavg").unwrap_or_default();
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    ready(&text).unwrap_or(0) / processors
}

/// The fourth field of proc_loadavg(5), `READY/ALL`. Returns its first number, that of the runnable
/// threads. `None` if the text has none.
fn ready(text: &str) -> Option<usize> {
    let (ready, _) = text.split_whitespace().nth(3)?.split_once('/')?;
    ready.parse().ok()
}

/// Raises the priority of the calling thread and of its future threads if the machine is saturated.
/// One second of file analysis would otherwise take the better part of an hour among 10,000
/// threads. Has no effect without CAP_SYS_NICE.
pub fn hurry() {
    const HIGHEST: libc::c_int = -20;
    let load = load();
    if load >= MANY {
        // SAFETY: sets the nice value of the calling thread.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, HIGHEST) };
    }
    if load >= TOO_MANY {
        let lowest = libc::sched_param { sched_priority: 1 };
        // SAFETY: sets the scheduling of the calling thread; the argument is live.
        unsafe { libc::sched_setscheduler(0, libc::SCHED_RR, &raw const lowest) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_threads_are_counted() {
        assert_eq!(ready("20.11 16.53 9.85 9998/10324 4711\n"), Some(9998));
        assert_eq!(ready("20.11 16.53\n"), None);
    }
}
