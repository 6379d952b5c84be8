//! Decides which file is a process's segment. A name proves nothing: anyone can create a file of
//! any name in the folder of segments. The evidence is who can write to the file, and whether the
//! process maps it.

use std::fs::{self, File, Metadata};
use std::io;
use std::mem::offset_of;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use abi::ABI_VERSION;
use abi::segment::{Header, MAGIC};

use super::error::SegmentError;
use super::lock::{Lock, PATIENCE};
use ipath_target::fault_injection::step;
use ipath_target::process::identity::file_id;
use ipath_target::process::{Mapping, Process};

/// The folder of named segments.
pub(super) const FOLDER: &str = "/dev/shm";
/// The name of every segment that only the target has, as it appears in maps and in links of
/// descriptors.
pub(super) const UNNAMED: &str = "/memfd:ipath (deleted)";
/// The beginning of names in [`FOLDER`].
const PREFIX: &str = "ipath-";
/// Permissions of a segment: only for its owner.
pub(super) const MODE: u32 = 0o600;

/// A file that appears to be the segment of a process. Its contents are not checked yet.
#[derive(Debug)]
pub struct Claim {
    pub(super) file: Arc<File>,
    /// The file's path. `None` for a segment that only the target has (a memfd).
    pub(super) path: Option<PathBuf>,
    /// True if the process maps the file.
    pub mapped: bool,
}

/// The path of a process's segment, with a suffix if something else has the usual name.
pub(super) fn path_for(process: &Process, suffix: Option<u32>) -> PathBuf {
    let name = format!("{PREFIX}{}-{}", process.pid, process.start_time);
    Path::new(FOLDER).join(match suffix {
        Some(suffix) => format!("{name}-{suffix:08x}"),
        None => name,
    })
}

/// True if the link of a descriptor shows a segment without a name.
pub fn is_unnamed(link: &Path) -> bool {
    link == Path::new(UNNAMED)
}

/// True if a name in maps is that of a segment of any process.
pub fn is_segment_name(name: &str) -> bool {
    let named = || {
        name.strip_prefix(FOLDER)?
            .strip_prefix('/')?
            .strip_prefix(PREFIX)
    };
    name == UNNAMED || named().is_some()
}

/// The process id and start time in the name of a segment; `None` for any other name.
pub(super) fn parse(name: &str) -> Option<(i32, u64)> {
    let mut parts = name.strip_prefix(PREFIX)?.split('-');
    let (pid, start) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let suffix = parts.next();
    let is_suffix = |s: &str| s.len() == 8 && s.bytes().all(|b| b.is_ascii_hexdigit());
    (suffix.is_none_or(is_suffix) && parts.next().is_none()).then_some((pid, start))
}

/// Files with names of segments, with the process ids and start times in these names.
pub(super) fn names() -> Vec<(PathBuf, (i32, u64))> {
    let entries = fs::read_dir(FOLDER).into_iter().flatten();
    let named = entries.filter_map(|entry| {
        let entry = entry.ok()?;
        let process = parse(entry.file_name().to_str()?)?;
        Some((entry.path(), process))
    });
    named.collect()
}

/// True if only root, the user of this command and the owner of the process can have created the
/// file or can write to it. The owner of a process that has ended is unknown. Root then trusts a
/// file of any user.
pub(super) fn is_trusted(metadata: &Metadata, owner: Option<u32>) -> bool {
    // SAFETY: takes no argument and cannot fail.
    let own = unsafe { libc::geteuid() };
    let is_private = metadata.is_file() && metadata.mode() & 0o7777 == MODE;
    let uid = metadata.uid();
    let by_owner = owner.map_or(own == 0, |owner| uid == owner);
    is_private && (uid == 0 || uid == own || by_owner)
}

/// The user that owns the process permanently; `None` if it has ended. A process counts as root's
/// if its ids differ, as those of a daemon with a user's effective id do, or if its user may not
/// trace it.
pub(super) fn owner_of(process: &Process) -> Option<u32> {
    if process.has_ended() {
        return None;
    }
    let folder = fs::metadata(format!("/proc/{}", process.pid));
    let uid = folder.ok()?.uid();
    // Real, effective, saved and of the file system (proc(5)).
    let ids = process.status("Uid").unwrap_or_default();
    let is_all = |id: &str| id.parse() == Ok(uid);
    let is_whole = !ids.is_empty() && ids.split_whitespace().all(is_all);
    Some(if is_whole { uid } else { 0 })
}

/// Opens a name that anyone may have created. Fails unless it is a regular file. Never waits or
/// follows a link.
pub(super) fn open(path: &Path) -> io::Result<File> {
    open_with(path, libc::O_NOFOLLOW)
}

fn open_with(path: &Path, flags: i32) -> io::Result<File> {
    let file = File::options()
        .read(true)
        .write(true)
        .custom_flags(flags | libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC)
        .open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::other("not a regular file"))
    }
}

/// A word of a segment's header; 0 beyond the end of the file.
fn word_at(file: &File, offset: usize) -> io::Result<u64> {
    let mut word = [0; 8];
    match file.read_exact_at(&mut word, offset as u64) {
        Ok(()) => Ok(u64::from_le_bytes(word)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
        Err(error) => Err(error),
    }
}

/// The process id and start time of the first process that is measured together with a segment's
/// target. Reads only the header of the named file; `None` if it is of another version.
pub fn family_at(path: &Path) -> Option<(i32, u64)> {
    let file = File::options()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open(path)
        .ok()?;
    let is_file = file.metadata().is_ok_and(|metadata| metadata.is_file());
    let word = |offset| word_at(&file, offset).ok().filter(|_| is_file);
    let is_ours = word(offset_of!(Header, magic))? == MAGIC
        && word(offset_of!(Header, version))? as u32 == ABI_VERSION;
    let pid = i32::try_from(word(offset_of!(Header, family_pid))?).ok()?;
    let start = word(offset_of!(Header, family_start))?;
    (is_ours && pid != 0).then_some((pid, start))
}

/// True if a name in maps is that of another process's segment.
fn is_named_for_another(name: &str, process: &Process) -> bool {
    let name = name.strip_suffix(" (deleted)").unwrap_or(name);
    let file = name.rsplit_once('/').map_or(name, |(_, file)| file);
    parse(file).is_some_and(|(pid, _)| !is_id_of(pid, process))
}

/// True if the header names another process. False if the header has not been written yet.
fn is_of_another(file: &File, process: &Process) -> io::Result<bool> {
    let is_written = word_at(file, offset_of!(Header, magic))? != 0;
    let pid = word_at(file, offset_of!(Header, pid))? as u32 as i32;
    Ok(is_written && !is_id_of(pid, process))
}

/// True if this is an id of the process in any pid namespace. The creator of a segment may have
/// been in another namespace.
fn is_id_of(pid: i32, process: &Process) -> bool {
    pid == process.pid.0 || process.has_id(pid)
}

impl Claim {
    /// The segment of a process: the one that it maps, otherwise a trusted file with its name.
    /// `None` if there is neither. `maps` reads the process's maps. It is called again if another
    /// command creates or removes a segment during the search.
    ///
    /// # Errors
    /// The error of `maps`, or a file that cannot be inspected.
    pub fn find<E: From<SegmentError>>(
        process: &Process,
        maps: impl Fn() -> Result<Vec<Mapping>, E>,
    ) -> Result<Option<Self>, E> {
        const TRIES: usize = 16;
        let mut tries = 1..TRIES;
        loop {
            match Self::find_in(process, &maps()?) {
                Err(SegmentError::Io(_, error))
                    if error.kind() == io::ErrorKind::NotFound && tries.next().is_some() => {}
                found => return Ok(found?),
            }
        }
    }

    /// Like [`Self::find`], with the process's maps.
    fn find_in(process: &Process, maps: &[Mapping]) -> Result<Option<Self>, SegmentError> {
        let owner = owner_of(process);
        let mut found: Vec<(u64, Self)> = Vec::new();
        let mut refused = None;
        for (path, named) in names() {
            if named != (process.pid.0, process.start_time) {
                continue;
            }
            // Files that are not trusted are not opened: opening a FIFO or a device has side
            // effects.
            let trusted = |m: &Metadata| is_trusted(m, owner);
            if !fs::symlink_metadata(&path).is_ok_and(|m| trusted(&m)) {
                continue;
            }
            let file = match open(&path) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => {
                    refused = Some(SegmentError::Io(path, error));
                    continue;
                }
            };
            let Ok(metadata) = file.metadata() else {
                continue;
            };
            let id = file_id(&metadata);
            let mapped = maps.iter().any(|m| m.file == id);
            if !trusted(&metadata) || (metadata.nlink() != 1 && !mapped) {
                continue;
            }
            let claim = Self {
                file: Arc::new(file),
                path: Some(path),
                mapped,
            };
            found.push((metadata.mtime() as u64, claim));
        }
        // Prefer the one that is mapped, then the latest.
        let best = found
            .into_iter()
            .max_by_key(|(made, claim)| (claim.mapped, *made));
        match best.map(|(_, claim)| claim) {
            Some(claim) if claim.mapped => Ok(Some(claim)),
            other => match Self::in_target(process, maps)? {
                Some(claim) => Ok(Some(claim)),
                None if other.is_none() => refused.map_or(Ok(None), Err),
                None => Ok(other),
            },
        }
    }

    /// A given file, regardless of its owner and contents. No command takes such a file for a
    /// process's segment. It serves to test that hostile contents cannot harm a reader.
    ///
    /// # Errors
    /// The file cannot be opened, or it is not a regular file.
    pub fn of_file(path: &Path) -> Result<Self, SegmentError> {
        let file = open(path).map_err(|e| SegmentError::Io(path.to_owned(), e))?;
        Ok(Self {
            file: Arc::new(file),
            path: Some(path.to_owned()),
            mapped: false,
        })
    }

    /// A segment without a name, or whose name is gone, by the target's own mapping of it. Skips a
    /// segment of another process, which a process maps if it inspects that process's session.
    /// `None` if the target maps no segment. Fails if a mapping cannot be inspected.
    pub(super) fn in_target(
        process: &Process,
        maps: &[Mapping],
    ) -> Result<Option<Self>, SegmentError> {
        let segments = maps.iter().filter(|m| is_segment_name(&m.name));
        for mapping in segments.filter(|m| !is_named_for_another(&m.name, process)) {
            let (start, end) = (mapping.range.start.0, mapping.range.end.0);
            let name = format!("/proc/{}/map_files/{start:x}-{end:x}", process.entry());
            let path = PathBuf::from(name);
            let io = |e| SegmentError::Io(path.clone(), e);
            // The link is the kernel's, but the target has chosen the name in its maps. So compare
            // the files.
            let is_it = |m: &Metadata| m.is_file() && file_id(m) == mapping.file;
            if !is_it(&fs::metadata(&path).map_err(io)?) {
                continue;
            }
            let file = open_with(&path, 0).map_err(io)?;
            if !is_it(&file.metadata().map_err(io)?) || is_of_another(&file, process).map_err(io)? {
                continue;
            }
            return Ok(Some(Self {
                file: Arc::new(file),
                path: None,
                mapped: true,
            }));
        }
        Ok(None)
    }

    /// Takes the lock of the file.
    ///
    /// # Errors
    /// [`SegmentError::Busy`] if another command holds it for 10 seconds.
    pub fn lock(&self) -> Result<Lock, SegmentError> {
        Lock::take(&self.file, PATIENCE)
    }

    /// Takes the lock of the file.
    ///
    /// # Errors
    /// [`SegmentError::Busy`] at once if another command holds it.
    pub fn try_lock(&self) -> Result<Lock, SegmentError> {
        Lock::take(&self.file, std::time::Duration::ZERO)
    }

    /// True if the creator of the file may have touched the process. Until then the file has
    /// neither a size nor a document.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn is_begun(&self) -> Result<bool, SegmentError> {
        let at = |offset| word_at(&self.file, offset);
        let fields = at(offset_of!(Header, magic))
            .and_then(|magic| Ok((magic, at(offset_of!(Header, document_turn))?)));
        match fields {
            Ok((magic, turn)) => Ok(magic != 0 && turn != 0),
            Err(error) => {
                let path = self
                    .path
                    .clone()
                    .unwrap_or_else(|| PathBuf::from("segment"));
                Err(SegmentError::Io(path, error))
            }
        }
    }

    /// The file's path. `None` for a segment that only the target has (a memfd).
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Removes the file's name. Does nothing if the name leads to another file.
    pub fn remove_name(&self) {
        if let Some(path) = self.path.as_ref().filter(|_| self.is_named()) {
            let _ = fs::remove_file(path);
            step("segment name");
        }
    }

    /// True if the file's name still leads to it, so that other commands find it. A file without a
    /// name is found while it is mapped.
    pub fn is_named(&self) -> bool {
        let Some(path) = &self.path else { return true };
        let (there, own) = (fs::symlink_metadata(path), self.file.metadata());
        matches!((there, own), (Ok(a), Ok(b)) if file_id(&a) == file_id(&b))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ipath_target::process::Pid;

    #[test]
    fn names_stand_for_processes() {
        let process = Process {
            pid: Pid(42),
            start_time: 1234,
        };
        for suffix in [None, Some(0), Some(u32::MAX)] {
            let path = path_for(&process, suffix);
            let name = path.file_name().and_then(|n| n.to_str()).expect("text");
            assert_eq!(parse(name), Some((42, 1234)), "{name}");
        }
        for other in [
            "ipath-",
            "ipath-42",
            "ipath-42-x",
            "ipath-42-1-short",
            "ipath-42-1-00000000-1",
            "x",
        ] {
            assert_eq!(parse(other), None, "{other}");
        }
    }

    #[test]
    fn devices_are_named_as_in_maps() {
        let process = Process::find(Pid(std::process::id() as i32)).expect("we run");
        let exe = fs::metadata("/proc/self/exe").expect("there");
        let maps = process.maps().expect("readable");
        assert!(maps.iter().any(|m| m.file == file_id(&exe)));
    }
}
