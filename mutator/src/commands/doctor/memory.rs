//! The memory left in the control groups of a process, and the rest of its address space limit. A
//! session's mappings are charged to both.

use super::line::{Line, Verdict, line};
use ipath_target::process::headroom::{Headroom, headroom, mib};
use ipath_target::process::{Process, limits};

/// With less memory left, a session can drive the process over its limit. In bytes.
const ENOUGH: u64 = 64 << 20;

/// A line if less than [`ENOUGH`] memory is left in a memory cgroup of the process.
pub(super) fn memory(process: &Process) -> Option<Line> {
    let Headroom { left, group } = headroom(process)?;
    (left < ENOUGH).then(|| {
        line(
            Verdict::Warn,
            format!(
                "process {}: its memory cgroup {} has {} MiB left",
                process.pid,
                group.display(),
                mib(left)
            ),
            "a session's memory is charged there, and it takes at most half of that: raise the \
            limit",
        )
    })
}

/// A line if a session could exceed the process's limit on its address space (`RLIMIT_AS`).
pub(super) fn addresses(process: &Process) -> Option<Line> {
    /// The addresses of a session and a reserve for the program, in bytes.
    const ENOUGH: u64 = 1 << 30;
    let size = process.status("VmSize")?;
    let left = limits::addresses(process)?.saturating_sub(kib(&size)?);
    (left < ENOUGH).then(|| {
        line(
            Verdict::Warn,
            format!(
                "process {}: its limit on addresses (RLIMIT_AS) leaves {} MiB",
                process.pid,
                mib(left)
            ),
            "a session reserves some 400 MiB of addresses, and uses few of them: prlimit --as",
        )
    })
}

/// A line if the process is close to its limit of mappings.
pub(super) fn mappings(process: &Process) -> Option<Line> {
    let (has, most) = limits::mappings(process)?;
    Some(line(
        Verdict::Warn,
        format!(
            "process {}: it has {has} of {most} allowed mappings",
            process.pid
        ),
        "a session needs some: raise vm.max_map_count",
    ))
}

/// Parses `N kB` to bytes. `None` if there is no number.
fn kib(text: &str) -> Option<u64> {
    let number: u64 = text.split_whitespace().next()?.parse().ok()?;
    number.checked_mul(1 << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        assert_eq!(kib("2820 kB"), Some(2820 << 10));
    }
}
