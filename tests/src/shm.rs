//! A /dev/shm for one test, in its own mount namespace, with a chosen amount of free space.

use crate::command::{Finished, Run};
use crate::place::ipath;
use crate::target::Target;
use nix::sys::statvfs::statvfs;
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::Command;

/// The namespace; dropping it removes it.
pub struct OwnShm {
    holder: Target,
}

impl OwnShm {
    /// A /dev/shm of this size, in the syntax of mount(8) (`64m`).
    ///
    /// # Panics
    /// If it cannot be made.
    pub fn of(size: &str) -> Self {
        let script = format!(
            "mount -t tmpfs -o size={size} tmpfs /dev/shm && echo ready && exec sleep 3600"
        );
        let holder = Target::start("unshare", ["--mount", "sh", "-c", &script]);
        Self {
            holder: holder.await_output("ready"),
        }
    }

    fn namespace(&self) -> String {
        format!("--mount=/proc/{}/ns/mnt", self.holder.pid())
    }

    /// Starts a program in the namespace, in the background.
    pub fn start<S: AsRef<OsStr>>(
        &self,
        program: impl AsRef<OsStr>,
        args: impl IntoIterator<Item = S>,
    ) -> Target {
        let mut command = Command::new("nsenter");
        command.arg(self.namespace()).arg(program).args(args);
        Target::spawn(command)
    }

    /// Runs ipath in the namespace.
    pub fn ipath<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Finished {
        let run = Run::new("nsenter").arg(self.namespace()).arg(ipath());
        run.args(args).run()
    }

    fn folder(&self) -> PathBuf {
        format!("/proc/{}/root/dev/shm", self.holder.pid()).into()
    }

    /// The number of free pages of 4096 bytes in it.
    ///
    /// # Panics
    /// If statvfs(3) fails.
    pub fn free_pages(&self) -> u64 {
        let stat = statvfs(&self.folder()).expect("mounted");
        stat.blocks_available() * stat.fragment_size() / 4096
    }

    /// Fills it until at most this many pages are free.
    ///
    /// # Panics
    /// If it cannot be filled.
    pub fn leave(&self, pages: u64) {
        self.empty();
        let filling = File::create(self.folder().join("filling")).expect("a new file");
        let len = self.free_pages().saturating_sub(pages) * 4096;
        if len > 0 {
            // SAFETY: the descriptor is open.
            let failed =
                unsafe { libc::posix_fallocate(filling.as_raw_fd(), 0, len as libc::off_t) };
            assert_eq!(failed, 0, "{len} bytes");
        }
    }

    /// Removes the filler file of [`OwnShm::leave`].
    pub fn empty(&self) {
        let _ = std::fs::remove_file(self.folder().join("filling"));
    }

    /// The names of its entries.
    ///
    /// # Panics
    /// If it cannot be read.
    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.folder()).expect("mounted");
        let name = |entry: std::io::Result<std::fs::DirEntry>| entry.expect("readable").file_name();
        let names = entries.map(|entry| name(entry).to_string_lossy().into_owned());
        names.collect()
    }
}
