//! The memory that the cgroups of a process have left: cgroups(7),
//! Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst.
//!
//! The memory of a session is charged to the target's cgroup, and the kernel kills a process of a
//! cgroup that exceeds its limit. The groups are read from /proc/PID/cgroup. Their mount points
//! come from /proc/self/mountinfo, else from the target's own mounts. Both files show paths
//! relative to the reader's cgroup namespace.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Process, read_text};

/// The memory left in the tightest memory cgroup of a process.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Headroom {
    /// The number of bytes until the limit of the cgroup. Page cache that the kernel can drop does
    /// not count as used.
    pub left: u64,
    /// The folder of the cgroup.
    pub group: PathBuf,
}

/// The tightest of the process's memory cgroups and their ancestors. `None` without a limit, or if
/// it cannot be read.
pub fn headroom(process: &Process) -> Option<Headroom> {
    folders(process).iter().filter_map(Folder::tightest).min()
}

/// True if this command's memory is charged to that group, directly or through a descendant.
fn contains_self(group: &Path) -> bool {
    let (Ok(groups), Ok(mounts)) = (
        read_text("/proc/self/cgroup"),
        read_text("/proc/self/mountinfo"),
    ) else {
        return false;
    };
    let own = in_mounts(&groups, &mounts, Path::new("/"));
    own.iter().any(|folder| folder.own.starts_with(group))
}

/// Makes the kernel kill this command before the program if both are in a memory cgroup that
/// reaches its limit: the memory of the analysis is charged to the same group.
pub fn yield_memory(process: &Process) {
    if headroom(process).is_some_and(|h| contains_self(&h.group)) {
        let _ = fs::write("/proc/self/oom_score_adj", "1000");
    }
}

/// The number of MiB with one decimal, without the unit.
pub fn mib(bytes: u64) -> String {
    let tenths = bytes.saturating_mul(10) >> 20;
    format!("{}.{}", tenths / 10, tenths % 10)
}

/// The folders of a process's memory cgroups.
fn folders(process: &Process) -> Vec<Folder> {
    let Ok(groups) = read_text(format!("/proc/{}/cgroup", process.entry())) else {
        return Vec::new();
    };
    let own = read_text("/proc/self/mountinfo").unwrap_or_default();
    let found = in_mounts(&groups, &own, Path::new("/"));
    if !found.is_empty() {
        return found;
    }
    let theirs = read_text(format!("/proc/{}/mountinfo", process.entry())).unwrap_or_default();
    let root = format!("/proc/{}/root", process.entry());
    in_mounts(&groups, &theirs, Path::new(&root))
}

/// The cgroup version, which determines the names of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// A memory cgroup.
#[derive(Debug, PartialEq, Eq)]
struct Folder {
    version: Version,
    /// The folder of the cgroup.
    own: PathBuf,
    /// The mount point of the cgroup's hierarchy, which is the topmost ancestor.
    mount: PathBuf,
}

/// The folders below `root` of the groups listed in `groups` (/proc/PID/cgroup), by the mounts in
/// `mounts` (mountinfo).
fn in_mounts(groups: &str, mounts: &str, root: &Path) -> Vec<Folder> {
    let group = |line: &str| {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let version = match controllers {
            "" => Version::Two,
            all if all.split(',').any(|c| c == "memory") => Version::One,
            _ => return None,
        };
        let mounts = mounts.lines().filter_map(|line| Mount::of(line, version));
        let folder = |mount: Mount<'_>| {
            // The path relative to the mounted part of the hierarchy. A path that begins with /..
            // is outside of it.
            let within = Path::new(path).strip_prefix(mount.root).ok()?;
            let is_inside = within.components().all(|c| c.as_os_str() != "..");
            let mount = root.join(mount.at.trim_start_matches('/'));
            is_inside.then(|| Folder {
                version,
                own: mount.join(within),
                mount,
            })
        };
        mounts.filter_map(folder).find(|folder| folder.own.is_dir())
    };
    groups.lines().filter_map(group).collect()
}

/// A mount of a cgroup hierarchy.
struct Mount<'l> {
    /// The group that is mounted.
    root: &'l str,
    /// The mount point.
    at: &'l str,
}

impl<'l> Mount<'l> {
    /// Parses a line of mountinfo (proc_pid_mountinfo(5)). `None` if it is not a mount of this
    /// hierarchy.
    fn of(line: &'l str, version: Version) -> Option<Self> {
        let (place, file_system) = line.split_once(" - ")?;
        let mut fields = place.split(' ').skip(3);
        let (root, at) = (fields.next()?, fields.next()?);
        let mut fields = file_system.split(' ');
        let (kind, _, options) = (fields.next()?, fields.next()?, fields.next()?);
        let is_it = match version {
            Version::Two => kind == "cgroup2",
            Version::One => kind == "cgroup" && options.split(',').any(|o| o == "memory"),
        };
        is_it.then_some(Self { root, at })
    }
}

impl Folder {
    /// The headroom of the tightest of the group and its ancestors. `None` if none has a limit.
    fn tightest(&self) -> Option<Headroom> {
        let folders = self.own.ancestors();
        let folders = folders.take_while(|folder| folder.starts_with(&self.mount));
        let of = |folder: &Path| {
            let left = self
                .version
                .left(|name| read_text(folder.join(name)).ok())?;
            Some(Headroom {
                left,
                group: folder.to_owned(),
            })
        };
        folders.filter_map(of).min()
    }
}

impl Version {
    /// Bytes until the lowest limit of one group. `read` reads the group's files. `None` without a
    /// limit.
    fn left(self, read: impl Fn(&str) -> Option<String>) -> Option<u64> {
        let number = |name: &str| read(name)?.trim().parse::<u64>().ok();
        let stat = |name: &str| {
            let text = read("memory.stat")?;
            let line = |line: &str| {
                let (key, value) = line.split_once(' ')?;
                (key == name).then(|| value.trim().parse::<u64>().ok())?
            };
            text.lines().find_map(line)
        };
        // `max`, or in version 1 a number near 2^63.
        let limits =
            |all: Vec<Option<u64>>| all.into_iter().flatten().filter(|&n| n < 1 << 62).min();
        let (limit, usage, cache) = match self {
            Self::Two => (
                // Above `high` the kernel throttles the program until it makes no progress.
                limits(vec![number("memory.max"), number("memory.high")])?,
                number("memory.current")?,
                stat("inactive_file"),
            ),
            Self::One => (
                limits(vec![
                    number("memory.limit_in_bytes"),
                    // The lowest limit of all ancestors, including those not mounted here.
                    stat("hierarchical_memory_limit"),
                ])?,
                number("memory.usage_in_bytes")?,
                stat("total_inactive_file"),
            ),
        };
        Some(limit.saturating_sub(usage.saturating_sub(cache.unwrap_or(0))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    const MOUNTS: &str = "\
30 23 0:26 / /sys/fs/cgroup/cpu rw shared:9 - cgroup cgroup rw,cpu,cpuacct
31 23 0:27 /docker/x:y ROOT/one rw shared:10 - cgroup cgroup rw,memory
32 23 0:28 / ROOT/two rw shared:11 - cgroup2 cgroup2 rw,nsdelegate
nonsense
";

    #[test]
    fn groups_are_found_by_their_mounts() {
        let root = crate::random::number();
        let root = std::env::temp_dir().join(format!("ipath-headroom-{root:x}"));
        for folder in ["one/inner", "two/user.slice/app"] {
            fs::create_dir_all(root.join(folder)).expect("a new folder");
        }
        let mounts = MOUNTS.replace("ROOT", "");
        let of = |groups: &str| in_mounts(groups, &mounts, &root);
        let both =
            of("12:cpu,cpuacct:/a\n5:memory:/docker/x:y/inner\n0::/user.slice/app\nnonsense\n");
        let found: Vec<_> = both.iter().map(|f| (f.version, f.own.clone())).collect();
        let expected = [
            (Version::One, root.join("one/inner")),
            (Version::Two, root.join("two/user.slice/app")),
        ];
        assert_eq!(found, expected);
        // In another container, and outside of the reader's namespace.
        assert_eq!(of("5:memory:/docker/other\n0::/../elsewhere\n"), []);
        // A group with a limit, and its ancestor.
        let app = &both[1];
        assert_eq!(app.tightest(), None);
        let write = |file: &str, text: &str| fs::write(root.join(file), text).expect("written");
        write("two/user.slice/app/memory.max", "max\n");
        write("two/user.slice/app/memory.current", "4096\n");
        write("two/user.slice/memory.max", "1048576\n");
        write("two/user.slice/memory.current", "1000000\n");
        let tightest = app.tightest().expect("a limit above");
        assert_eq!(
            (tightest.left, tightest.group),
            (48_576, root.join("two/user.slice"))
        );
        fs::remove_dir_all(&root).expect("its own");
    }

    #[test]
    fn what_is_left_is_the_lowest_limit_less_what_cannot_be_dropped() {
        let left = |version: Version, files: &[(&str, &str)]| {
            let files: HashMap<_, _> = files.iter().copied().collect();
            version.left(|name| files.get(name).map(|text| (*text).to_owned()))
        };
        let two = |max, high, stat| {
            let current = ("memory.current", "600\n");
            let all = [
                ("memory.max", max),
                ("memory.high", high),
                ("memory.stat", stat),
                current,
            ];
            left(Version::Two, &all)
        };
        assert_eq!(two("1000\n", "max\n", ""), Some(400));
        assert_eq!(two("1000\n", "700\n", ""), Some(100));
        assert_eq!(
            two("1000\n", "max\n", "anon 5\ninactive_file 200\nfile 400\n"),
            Some(600)
        );
        assert_eq!(two("500\n", "max\n", ""), Some(0));
        assert_eq!(two("max\n", "max\n", ""), None);
        let one = |limit, stat| {
            let usage = ("memory.usage_in_bytes", "600\n");
            let all = [
                ("memory.limit_in_bytes", limit),
                ("memory.stat", stat),
                usage,
            ];
            left(Version::One, &all)
        };
        assert_eq!(one("1000\n", ""), Some(400));
        assert_eq!(one("9223372036854771712\n", ""), None);
        let of_parent = "inactive_file 7\nhierarchical_memory_limit 900\ntotal_inactive_file 50\n";
        assert_eq!(one("9223372036854771712\n", of_parent), Some(350));
        assert_eq!(left(Version::One, &[]), None);
    }
}
