//! How much memory the control groups of a process leave it, and how many addresses its limit: what a session maps
//! is charged there.

use std::path::{Path, PathBuf};

use super::line::{Line, Verdict, line};
use crate::process::{Process, limits, read_text};

/// With less than this left, a session can drive the process over its limit.
const ENOUGH: u64 = 64 << 20;

/// A line, where a group of the process is near its limit.
pub(super) fn memory(process: &Process) -> Option<Line> {
    let text = read_text(format!("/proc/{}/cgroup", process.pid)).ok()?;
    let groups = groups(&text);
    let (left, group) = groups.iter().filter_map(Group::tightest).min()?;
    (left < ENOUGH).then(|| {
        line(
            Verdict::Warn,
            format!(
                "process {}: its memory cgroup {} has {} MiB left",
                process.pid,
                group.display(),
                left >> 20
            ),
            "what a session maps is charged there: raise memory.max, or give a small --max-paths",
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
                left >> 20
            ),
            "a session takes some 400 MiB of them, of which it uses few: prlimit --as",
        )
    })
}

/// Bytes of `N kB`.
fn kib(text: &str) -> Option<u64> {
    let number: u64 = text.split_whitespace().next()?.parse().ok()?;
    number.checked_mul(1 << 10)
}

/// A memory group, and what its files are called.
#[derive(Debug, PartialEq, Eq)]
struct Group {
    root: &'static str,
    path: String,
    limit: &'static str,
    usage: &'static str,
}

/// The groups that limit memory: lines of /proc/PID/cgroup, cgroups(7).
fn groups(text: &str) -> Vec<Group> {
    let group = |line: &str| {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let path = path.to_owned();
        if controllers.is_empty() {
            return Some(Group {
                root: "/sys/fs/cgroup",
                path,
                limit: "memory.max",
                usage: "memory.current",
            });
        }
        controllers
            .split(',')
            .any(|c| c == "memory")
            .then_some(Group {
                root: "/sys/fs/cgroup/memory",
                path,
                limit: "memory.limit_in_bytes",
                usage: "memory.usage_in_bytes",
            })
    };
    text.lines().filter_map(group).collect()
}

impl Group {
    /// Bytes left in the tightest of the group and those it is in, and which that is.
    fn tightest(&self) -> Option<(u64, PathBuf)> {
        let root = Path::new(self.root);
        let own = root.join(self.path.trim_start_matches('/'));
        let within = own.ancestors().take_while(|p| p.starts_with(root));
        let left = |folder: &Path| {
            let read = |name| read_text(folder.join(name)).ok();
            Some((
                left(&read(self.limit)?, &read(self.usage)?)?,
                folder.to_owned(),
            ))
        };
        within.filter_map(left).min()
    }
}

/// Bytes between usage and limit; none without a limit.
fn left(limit: &str, usage: &str) -> Option<u64> {
    let limit: u64 = limit.trim().parse().ok()?;
    let usage: u64 = usage.trim().parse().ok()?;
    Some(limit.saturating_sub(usage))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_of_groups_are_read() {
        let text = "12:cpu,cpuacct:/a\n5:memory:/docker/x:y\n0::/user.slice/app\nnonsense\n";
        let groups = groups(text);
        let found: Vec<_> = groups.iter().map(|g| (g.path.as_str(), g.limit)).collect();
        assert_eq!(
            found,
            [
                ("/docker/x:y", "memory.limit_in_bytes"),
                ("/user.slice/app", "memory.max")
            ]
        );
    }

    #[test]
    fn sizes_are_read() {
        assert_eq!(kib("2820 kB"), Some(2820 << 10));
    }

    #[test]
    fn what_is_left_is_limit_less_usage() {
        assert_eq!(left("1000\n", "400\n"), Some(600));
        assert_eq!(left("1000", "1200"), Some(0));
        assert_eq!(left("max\n", "400\n"), None);
        assert_eq!(left("", "400"), None);
    }
}
