//! The limits on what a process may have (getrlimit(2)), as far as a session comes near them.

use nix::errno::Errno;

use super::{Process, read_text};
use ipath_base::hint::{Hint, Word, hint};

/// A limit: the name of its line in /proc/PID/limits, of the resource, and of prlimit(1)'s option.
struct Limit {
    line: &'static str,
    resource: &'static str,
    option: &'static str,
}

const ADDRESSES: Limit = Limit {
    line: "Max address space",
    resource: "RLIMIT_AS",
    option: "as",
};
const DATA: Limit = Limit {
    line: "Max data size",
    resource: "RLIMIT_DATA",
    option: "data",
};
const FILES: Limit = Limit {
    line: "Max open files",
    resource: "RLIMIT_NOFILE",
    option: "nofile",
};

/// The soft limit of a process on its addresses, bytes; none without one.
pub fn addresses(process: &Process) -> Option<u64> {
    soft(&text(process)?, &ADDRESSES)
}

/// Mappings that a session needs, including those from splits and some for the process's threads.
const MAPPINGS: u64 = 64;

/// The number of mappings of a process and its limit (`vm.max_map_count`,
/// Documentation/admin-guide/sysctl/vm.rst), if the rest is too small for a session.
pub fn mappings(process: &Process) -> Option<(u64, u64)> {
    let most = read_text("/proc/sys/vm/max_map_count").ok()?;
    let most: u64 = most.trim().parse().ok()?;
    let maps = std::fs::read(format!("/proc/{}/maps", process.entry())).ok()?;
    let has = maps.iter().filter(|&&byte| byte == b'\n').count() as u64;
    (has.saturating_add(MAPPINGS) > most).then_some((has, most))
}

/// What to do about a system call in a process that has failed so, where one of its limits is why.
pub fn mend(process: &Process, errno: Errno) -> Option<Hint> {
    // EAGAIN if a mapping cannot be split (madvise(2)).
    if matches!(errno, Errno::ENOMEM | Errno::EAGAIN)
        && let Some((has, most)) = mappings(process)
    {
        let number = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        return Some(hint!(
            "the process has {} of the {} mappings that the kernel allows it, and a session takes up to {}: raise vm.max_map_count (sysctl -w vm.max_map_count={})",
            number(has),
            number(most),
            number(MAPPINGS),
            number(2 * most)
        ));
    }
    let text = text(process)?;
    let candidates: &[Limit] = match errno {
        Errno::ENOMEM => &[ADDRESSES, DATA],
        Errno::EMFILE => &[FILES],
        _ => return None,
    };
    let limit = candidates
        .iter()
        .find(|limit| soft(&text, limit).is_some())?;
    let needed = match errno {
        Errno::EMFILE => Hint::from("a session takes one for a moment"),
        _ => Hint::from("a session takes some 400 MiB"),
    };
    Some(hint!(
        "a limit of the process is in the way ({}); {}: raise it by `prlimit --pid {} --{}=...`, or where it is started",
        Word(limit.resource),
        needed,
        process.pid,
        Word(limit.option)
    ))
}

fn text(process: &Process) -> Option<String> {
    read_text(format!("/proc/{}/limits", process.entry())).ok()
}

/// The soft limit in such a text; none without one.
fn soft(limits: &str, limit: &Limit) -> Option<u64> {
    let fields = limits.lines().find_map(|l| l.strip_prefix(limit.line))?;
    fields.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read() {
        let of = |value: &str| {
            let text = format!(
                "Limit                     Soft Limit           Hard Limit           Units\n\
                 Max address space         {value}            unlimited            bytes\n"
            );
            soft(&text, &ADDRESSES)
        };
        assert_eq!(of("536870912"), Some(512 << 20));
        assert_eq!(of("unlimited"), None);
    }
}
