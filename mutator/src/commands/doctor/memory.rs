//! How much memory the control groups of a process leave it, and how many addresses its limit: what a session maps
//! is charged there.

use super::line::{Line, Verdict, line};
use ipath_target::process::headroom::{Headroom, headroom, mib};
use ipath_target::process::{Process, limits};

/// With less than this left, a session can drive the process over its limit.
const ENOUGH: u64 = 64 << 20;

/// A line, where a group of the process is near its limit.
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
            "what a session takes is charged there, and it takes half of that at most: raise the limit",
        )
    })
}

/// A line, where the process has a limit on its addresses that a session comes near.
pub(super) fn addresses(process: &Process) -> Option<Line> {
    /// Of a session, and some for the program.
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
            "a session takes some 400 MiB of them, of which it uses few: prlimit --as",
        )
    })
}

/// A line if the process is close to its limit of mappings.
pub(super) fn mappings(process: &Process) -> Option<Line> {
    let (has, most) = limits::mappings(process)?;
    Some(line(
        Verdict::Warn,
        format!(
            "process {}: it has {has} of the {most} mappings that it may have",
            process.pid
        ),
        "a session takes some: raise vm.max_map_count",
    ))
}

/// Bytes of `N kB`.
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
