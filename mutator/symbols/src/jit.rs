//! Names of code that a process generated at run time, as recorded by its compiler: in
//! `/tmp/perf-PID.map`, in a `jit-PID.dump` that is mapped executable so that others find it, or in
//! memory for debuggers.
//!
//! The names are only shown. The files are read at their paths in the process's root. They must be
//! regular files of the process's user or of root that are not world-writable.

mod dump;
mod entries;
pub mod jvm;
mod perf_map;
mod ranges;
mod registered;
mod unwinder;

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

pub use entries::{Entries, Sources, makes_code};
pub use ranges::Named;
pub use registered::{REGISTERING, Registers};

use dump::Dump;
use patcher::Avma;
use perf_map::PerfMap;
use ranges::Ranges;
use registered::Registered;

use ipath_base::files::open_place;
use ipath_target::process::{Mapping, Process, Root};

/// The maximum number of dumps to read per process.
const MOST_DUMPS: usize = 8;

/// The known names of a process's generated code.
#[derive(Debug, Default)]
pub struct JitNames {
    /// The location of its files. `None` if it cannot be read.
    home: Option<Home>,
    /// `/tmp/perf-PID.map`.
    map: Watched<PerfMap>,
    /// The dumps, by their paths in the process's root.
    dumps: BTreeMap<PathBuf, Watched<Dump>>,
    process: Option<Process>,
    /// Code that was registered with debuggers.
    registered: Registered,
}

/// The location of a process's files, and their required owner.
#[derive(Debug)]
struct Home {
    root: Root,
    /// The process's effective user id.
    user: u32,
    /// The process's id in its own pid namespace.
    pid: i32,
}

/// A file that is read as it grows, and its names.
#[derive(Debug, Default)]
struct Watched<R> {
    /// Device, inode and length at the last read.
    seen: (u64, u64, u64),
    reader: R,
    names: Ranges,
}

impl JitNames {
    /// The names of a process, of which nothing is read yet. Its files can be read after it has
    /// ended, too.
    pub fn of(process: &Process) -> Self {
        let home = || {
            let user = process.effective_user()?;
            let root = Root::of(process).ok()?;
            let pid = process.inner_pid();
            Some(Home { root, user, pid })
        };
        Self {
            home: home(),
            process: Some(process.clone()),
            ..Self::default()
        }
    }

    /// Learns the dumps among the process's mappings, for [`Self::refresh`].
    pub fn learn(&mut self, maps: &[Mapping]) {
        let mapped = maps.iter().filter(|m| m.execute);
        for path in mapped.filter_map(Mapping::path) {
            self.learn_path(&path);
        }
    }

    /// Learns a file that is mapped executable, if its name is that of a dump of this process. At
    /// most 8 are kept.
    pub fn learn_path(&mut self, path: &Path) {
        let Some(home) = &self.home else { return };
        let name = path.file_name().and_then(|name| name.to_str());
        let is_records = name.is_some_and(|name| is_dump(name, home.pid));
        if is_records && self.dumps.len() < MOST_DUMPS && !self.dumps.contains_key(path) {
            self.dumps.insert(path.to_owned(), Watched::default());
        }
    }

    /// Reads new names from the files and from memory. True if a file changed or code was
    /// registered.
    pub fn refresh(&mut self) -> bool {
        let process = self.process.as_ref();
        let registered = process.is_some_and(|process| self.registered.read(process));
        let Some(home) = &self.home else {
            return registered;
        };
        let path = format!("tmp/perf-{}.map", home.pid);
        // A file that cannot be read gives no names.
        let mut is_new = home
            .read(Path::new(&path), &mut self.map, PerfMap::read)
            .unwrap_or(false);
        for (path, watched) in &mut self.dumps {
            let read = |dump: &mut Dump, file: &File, len, names: &mut Ranges| {
                dump.read(file, len, home.pid, names)
            };
            is_new |= home.read(path, watched, read).unwrap_or(false);
        }
        is_new | registered
    }

    /// The generated function at an address. `None` if no name is known there. Dumps take
    /// precedence, then the map, then registered code.
    pub fn at(&self, at: Avma) -> Option<&Named> {
        let in_dumps = self.dumps.values().find_map(|dump| dump.names.at(at));
        let in_file = in_dumps.or_else(|| self.map.names.at(at));
        in_file.or_else(|| self.registered.names.at(at))
    }

    /// All names of generated code, as the compiler recorded them.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let in_dumps = self.dumps.values().flat_map(|dump| dump.names.names());
        let in_files = in_dumps.chain(self.map.names.names());
        in_files.chain(self.registered.names.names())
    }
}

/// True for the file name `jit-PID.dump` of the process `pid`, and for bun's `jit-PID-TID.dump`.
fn is_dump(name: &str, pid: i32) -> bool {
    let rest = name.strip_prefix(&format!("jit-{pid}"));
    let Some(thread) = rest.and_then(|rest| rest.strip_suffix(".dump")) else {
        return false;
    };
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    thread.is_empty() || thread.strip_prefix('-').is_some_and(is_number)
}

impl Home {
    /// Reads the new part of a file by `read`. False if the file is unchanged, or if the process's
    /// compiler cannot have written it. Fails if the file cannot be opened or read.
    fn read<R: Default>(
        &self,
        path: &Path,
        watched: &mut Watched<R>,
        read: impl FnOnce(&mut R, &File, u64, &mut Ranges) -> io::Result<()>,
    ) -> io::Result<bool> {
        let place = self.root.place_itself(path)?;
        let meta = place.metadata()?;
        let now = (meta.dev(), meta.ino(), meta.len());
        if now == watched.seen || !self.is_trusted(&meta) {
            return Ok(false);
        }
        let file = open_place(&place)?;
        let (device, inode, len) = watched.seen;
        if (meta.dev(), meta.ino()) != (device, inode) || meta.len() < len {
            *watched = Watched::default();
        }
        watched.seen = now;
        read(&mut watched.reader, &file, meta.len(), &mut watched.names)?;
        Ok(true)
    }

    /// True if the file belongs to the process's user or to root, and others cannot write to it.
    fn is_trusted(&self, meta: &Metadata) -> bool {
        const WRITABLE_BY_ALL: u32 = 0o002;
        (meta.uid() == self.user || meta.uid() == 0) && meta.mode() & WRITABLE_BY_ALL == 0
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    #[test]
    fn records_bear_the_id_of_the_process() {
        for (name, is_one) in [
            ("jit-42.dump", true),
            ("jit-42-43.dump", true),
            ("jit-42-.dump", false),
            ("jit-421.dump", false),
            ("jit-42-x.dump", false),
            ("jit-43-42.dump", false),
        ] {
            assert_eq!(super::is_dump(name, 42), is_one, "{name}");
        }
    }

    use nix::sys::memfd::{MFdFlags, memfd_create};

    /// An unlinked file.
    pub(super) fn own_file() -> File {
        File::from(memfd_create(c"test", MFdFlags::empty()).expect("made"))
    }
}
