//! Seccomp filters of a target, and their effects on the system calls that attaching makes.
//!
//! With CAP_SYS_ADMIN, ipath suspends filters for these calls. Otherwise, the kernel only reveals
//! that a filter exists (PTRACE_SECCOMP_GET_FILTER needs the same capability). Most filters answer
//! with an error or with SIGSYS, and the program notices neither. One that kills ends the program,
//! which no tracer can prevent (kernel/seccomp.c, SA_IMMUTABLE).

use ipath_target::process::{Process, status_line};
use ipath_target::progress::{THREADS, over};

/// The line of /proc/PID/status with the number of a thread's filters.
const FILTERS: &str = "Seccomp_filters";

/// True if a filter may end the process for a system call that ipath makes on one of its threads.
///
/// Filters that also apply to ipath do not count: everything in a container runs under the same
/// ones.
pub fn may_end(process: &Process) -> bool {
    let own = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    if can_suspend(&own) {
        return false;
    }
    let own = filters(status_line(&own, FILTERS));
    let tids = process.tids().unwrap_or_default();
    let mut of_threads =
        over(THREADS, tids).map(|tid| filters(process.thread_status(tid, FILTERS).as_deref()));
    of_threads.any(|number| number > own)
}

/// The number of seccomp filters that the value of the status line gives. 0 without a line, as
/// after the end of a thread.
fn filters(line: Option<&str>) -> u32 {
    line.and_then(|line| line.parse().ok()).unwrap_or(0)
}

/// True if a thread with this status may suspend the filters of a tracee
/// (PTRACE_O_SUSPEND_SECCOMP). That requires CAP_SYS_ADMIN, and the thread itself must not be under
/// a filter.
fn can_suspend(status: &str) -> bool {
    const CAP_SYS_ADMIN: u32 = 21;
    let effective = status_line(status, "CapEff").unwrap_or_default();
    let effective = u64::from_str_radix(effective, 16).unwrap_or(0);
    let is_filtered = status_line(status, "Seccomp").is_none_or(|mode| mode != "0");
    effective & 1 << CAP_SYS_ADMIN != 0 && !is_filtered
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suspending_takes_the_capability_and_no_filter() {
        let status = |capabilities, mode| {
            format!("Name:\tipath\nCapEff:\t{capabilities}\nSeccomp:\t{mode}\n")
        };
        assert!(can_suspend(&status("000001ffffffffff", 0)));
        assert!(!can_suspend(&status("000001ffffffffff", 2)));
        assert!(!can_suspend(&status("0000000000080000", 0)));
        assert!(!can_suspend(""));
    }

    #[test]
    fn filters_are_counted() {
        assert_eq!(filters(Some("3")), 3);
        assert_eq!(filters(None), 0);
    }
}
