//! Errors of processes.

use nix::errno::Errno;

use crate::failure::Failure;
use ipath_base::hint::{Hint, Word, hint};
use ipath_target::process::limits::Exceeded;
use ipath_target::process::{FOLLOWER, Process, ProcessError, limits, status_field};

/// An error of a process, for users.
pub(in crate::commands) trait ProcessFailure {
    /// Converts the error to a failure of `operation`, with advice.
    fn failure(self, operation: &str) -> Failure;

    /// The user's remedy for the error. `None` if there is none.
    fn advice(&self) -> Option<Hint>;
}

impl ProcessFailure for ProcessError {
    fn failure(self, operation: &str) -> Failure {
        let advice = self.advice();
        Failure::of(operation, self).maybe_hint(advice)
    }

    fn advice(&self) -> Option<Hint> {
        match self {
            // SAFETY: takes no argument and cannot fail.
            Self::Denied(..) if unsafe { libc::geteuid() } == 0 => Some(
                "root is not enough here: the container lacks CAP_SYS_PTRACE, or a security \
                module forbids it"
                    .into(),
            ),
            Self::Denied(..) => Some("run ipath as that user or as root (CAP_SYS_PTRACE)".into()),
            Self::NotElf64(..) => Some("ipath measures only 64-bit programs for x86-64".into()),
            Self::Zombie(_) => Some("there is nothing left to measure".into()),
            Self::OtherProgram(_) => Some("attach again to measure its new program".into()),
            Self::Own(_) => Some("name the process to measure".into()),
            Self::KernelThread(_) => Some("perf and bpftrace measure the kernel".into()),
            Self::Traced(.., by, name) if name == FOLLOWER => {
                let process = status_field(&format!("/proc/{by}/status"), "Tgid");
                let process = process.unwrap_or_else(|| by.to_string());
                Some(hint!(
                    "another ipath follows it: change it in that one's view, or end that one \
                    (`kill {}`)",
                    Word(&process)
                ))
            }
            Self::Traced(.., by, name) => {
                Some(hint!("detach {} (process {}) first", Word(name), *by))
            }
            _ => None,
        }
    }
}

/// The remedy for a system call that failed in a process because of one of the process's limits.
/// `None` if no limit explains the error.
pub(super) fn raise(process: &Process, errno: Errno) -> Option<Hint> {
    match limits::exceeded(process, errno)? {
        Exceeded::Mappings { has, most, needed } => {
            let number = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
            Some(hint!(
                "the process has {} of the {} mappings that the kernel allows, and a session \
                needs up to {}: raise vm.max_map_count (sysctl -w vm.max_map_count={})",
                number(has),
                number(most),
                number(needed),
                number(2 * most)
            ))
        }
        Exceeded::Resource {
            name,
            option,
            errno,
        } => {
            let needed = match errno {
                Errno::EMFILE => Hint::from("a session needs one for a moment"),
                _ => Hint::from("a session needs some 400 MiB"),
            };
            Some(hint!(
                "a limit of the process is too low ({}); {}: raise it with `prlimit --pid {} \
                --{}=...`, or where the process is started",
                Word(name),
                needed,
                process.pid,
                Word(option)
            ))
        }
    }
}
