//! A memory cgroup for one test, version 1 or 2, with a chosen amount of free memory.

use std::fs;
use std::path::PathBuf;

/// The group; dropping it removes it.
pub struct MemoryGroup {
    folder: PathBuf,
    /// The file with the limit in bytes.
    limit: &'static str,
    /// The file with the used bytes.
    usage: &'static str,
    /// The key in memory.stat of the bytes that the kernel can reclaim.
    cache: &'static str,
    /// The file with the number of killed processes.
    events: &'static str,
}

impl MemoryGroup {
    /// A group without processes and with a limit of 1 GiB. `None`, with a message on standard
    /// output, if this user cannot create one.
    pub fn new(name: &str) -> Option<Self> {
        let name = format!("ipath-tests-{}-{name}", std::process::id());
        let one = Self {
            folder: PathBuf::from("/sys/fs/cgroup/memory").join(&name),
            limit: "memory.limit_in_bytes",
            usage: "memory.usage_in_bytes",
            cache: "total_inactive_file",
            events: "memory.oom_control",
        };
        let two = || Self {
            folder: PathBuf::from("/sys/fs/cgroup").join(&name),
            limit: "memory.max",
            usage: "memory.current",
            cache: "inactive_file",
            events: "memory.events",
        };
        let made = one.made().or_else(|| two().made());
        if made.is_none() {
            println!("no memory cgroup can be made here: nothing of it is tested");
        }
        made
    }

    /// Creates the group; `None` if this user cannot.
    fn made(self) -> Option<Self> {
        fs::create_dir(&self.folder).ok()?;
        // On failure the group is dropped, which removes it.
        fs::write(self.folder.join(self.limit), "1073741824").ok()?;
        Some(self)
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.folder.join(file)).expect("a file of the group's")
    }

    /// The number after `key` in a file of the group; 0 if there is none.
    fn stat(&self, file: &str, key: &str) -> u64 {
        let text = self.read(file);
        let line = text.lines().find_map(|line| line.strip_prefix(key));
        line.and_then(|value| value.trim().parse().ok())
            .unwrap_or(0)
    }

    /// Moves a process into the group.
    ///
    /// # Panics
    /// If the process has ended.
    pub fn take(&self, pid: u32) {
        fs::write(self.folder.join("cgroup.procs"), pid.to_string()).expect("a process that runs");
    }

    /// The file to which a shell writes its process id to move itself into the group.
    pub fn processes(&self) -> PathBuf {
        self.folder.join("cgroup.procs")
    }

    /// Sets the group's limit so that this many bytes are left, or a few more if the kernel refuses
    /// that limit.
    ///
    /// # Panics
    /// If the group's files cannot be read or written.
    pub fn leave(&self, bytes: u64) {
        let write = |limit: u64| fs::write(self.folder.join(self.limit), limit.to_string());
        write(1 << 40).expect("a higher limit");
        let usage: u64 = self.read(self.usage).trim().parse().expect("a number");
        let used = usage.saturating_sub(self.stat("memory.stat", &format!("{} ", self.cache)));
        let mut limit = (used + bytes).next_multiple_of(4096);
        // The kernel refuses a limit to which it cannot reduce the usage.
        while write(limit).is_err() {
            limit += 64 << 10;
        }
    }

    /// The number of processes that the kernel has killed because of the limit.
    pub fn killed(&self) -> u64 {
        self.stat(self.events, "oom_kill ")
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        for _ in 0..100 {
            if fs::remove_dir(&self.folder).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}
