//! Resource limits of a process (getrlimit(2)) that a session may reach.

use nix::errno::Errno;

use super::{Process, read_text};

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

/// The soft limit on a process's address space, in bytes. `None` without a limit, or if it cannot
/// be read.
pub fn addresses(process: &Process) -> Option<u64> {
    soft(&text(process)?, &ADDRESSES)
}

/// The number of mappings that a session needs, including those from splits and a reserve for the
/// process's threads.
const MAPPINGS: u64 = 64;

/// The number of mappings of a process and its limit (`vm.max_map_count`,
/// Documentation/admin-guide/sysctl/vm.rst). `None` if the remainder suffices for a session, or if
/// it cannot be read.
pub fn mappings(process: &Process) -> Option<(u64, u64)> {
    let most = read_text("/proc/sys/vm/max_map_count").ok()?;
    let most: u64 = most.trim().parse().ok()?;
    let maps = std::fs::read(format!("/proc/{}/maps", process.entry())).ok()?;
    let has = maps.iter().filter(|&&byte| byte == b'\n').count() as u64;
    (has.saturating_add(MAPPINGS) > most).then_some((has, most))
}

/// A limit of a process that may have made a system call fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exceeded {
    /// The number of the process's mappings.
    Mappings {
        /// Mappings that it has.
        has: u64,
        /// Mappings that the kernel allows (`vm.max_map_count`).
        most: u64,
        /// Mappings that a session takes at most.
        needed: u64,
    },
    /// A resource limit.
    Resource {
        /// The limit's name in getrlimit(2).
        name: &'static str,
        /// The option of prlimit(1) that sets the limit.
        option: &'static str,
        /// The error of the system call.
        errno: Errno,
    },
}

/// The limit that may have made a system call of the process fail with `errno`: the first one that
/// is set and fits `errno`. `None` if there is none.
pub fn exceeded(process: &Process, errno: Errno) -> Option<Exceeded> {
    // EAGAIN if a mapping cannot be split (madvise(2)).
    if matches!(errno, Errno::ENOMEM | Errno::EAGAIN)
        && let Some((has, most)) = mappings(process)
    {
        return Some(Exceeded::Mappings {
            has,
            most,
            needed: MAPPINGS,
        });
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
    Some(Exceeded::Resource {
        name: limit.resource,
        option: limit.option,
        errno,
    })
}

fn text(process: &Process) -> Option<String> {
    read_text(format!("/proc/{}/limits", process.entry())).ok()
}

/// The soft limit in the text of a limits file. `None` if it is unlimited.
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
