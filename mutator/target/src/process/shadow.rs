//! User shadow stacks (Documentation/arch/x86/shstk.rst): copies of return addresses that the
//! processor compares with those on the stack. Each thread has its own and inherits the setting
//! from its creator.

use super::{Process, status_line};
use crate::progress::{THREADS, over};

/// The line of /proc/PID/status that lists a thread's enabled features. Kernels without support
/// omit it.
const FEATURES: &str = "x86_Thread_features";
const SHADOW_STACK: &str = "shstk";
/// The feature flag for support by processor and kernel, in /proc/cpuinfo.
const ABLE: &str = "user_shstk";

impl Process {
    /// True if any thread of the process has a shadow stack enabled, or if its threads cannot be
    /// listed.
    pub fn has_shadow_stacks(&self) -> bool {
        // Kernels without support have no such line.
        if self.status(FEATURES).is_none() {
            return false;
        }
        let Some(tids) = self.tids() else {
            return true;
        };
        let mut lines = over(THREADS, tids).filter_map(|tid| self.thread_status(tid, FEATURES));
        lines.any(|line| lists(&line))
    }
}

/// True if a thread's status file lists a shadow stack.
pub fn is_in(status: &str) -> bool {
    status_line(status, FEATURES).is_some_and(lists)
}

/// True if programs can have shadow stacks on this machine, or if that is unknown.
pub fn is_able() -> bool {
    let read = std::fs::read_to_string("/proc/cpuinfo");
    // If unknown, assume that they can.
    read.map_or(true, |text| can(&text))
}

/// True if the line lists the shadow stack feature.
fn lists(line: &str) -> bool {
    line.split_whitespace()
        .any(|feature| feature == SHADOW_STACK)
}

/// True if the text of /proc/cpuinfo lists the feature flag.
fn can(cpuinfo: &str) -> bool {
    let flags = cpuinfo.lines().find_map(|line| line.strip_prefix("flags"));
    flags.is_some_and(|flags| flags.split_whitespace().any(|flag| flag == ABLE))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines as fs/proc/array.c of Linux 6.6 prints them.
    #[test]
    fn threads_say_what_they_have_on() {
        for (line, expected) in [
            ("shstk", true),
            ("shstk wrss", true),
            ("", false),
            ("wrss", false),
        ] {
            let status = format!(
                "Name:\tapp\nSeccomp:\t0\nx86_Thread_features:\t{line} \nx86_Thread_features_locked:\tshstk wrss \n"
            );
            assert_eq!(is_in(&status), expected, "{line}");
        }
        assert!(!is_in("x86_Thread_features_locked:\tshstk \n"));
    }

    #[test]
    fn processors_say_what_they_can_do() {
        assert!(can("processor\t: 0\nflags\t\t: fpu user_shstk vme\n"));
        assert!(!can(
            "processor\t: 0\nflags\t\t: fpu vme\nbugs\t\t: user_shstk\n"
        ));
    }

    #[test]
    fn this_process_is_as_its_first_thread() {
        let own = Process::find(super::super::Pid(std::process::id() as i32)).expect("we run");
        let text = std::fs::read_to_string("/proc/self/status").expect("there");
        assert_eq!(own.has_shadow_stacks(), is_in(&text));
    }
}
