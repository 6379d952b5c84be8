//! Checks that a path leads to the file that a process has mapped.
//!
//! The kernel identifies a mapped file by device and inode (/proc/PID/maps). stat(2) gives the same
//! numbers on most file systems. On btrfs and overlayfs, however, stat(2) gives a device per
//! subvolume or layer. So if the numbers differ, the file is mapped briefly in this process, and
//! the kernel's line for that mapping is compared.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use memmap2::MmapOptions;
use patcher::image::Image;

use super::maps;
use ipath_base::files::{FileBytes, open_regular};

/// Device and inode as /proc/PID/maps prints them.
pub type FileId = (String, u64);

/// Device and inode from stat(2), in the format of /proc/PID/maps.
pub fn file_id(metadata: &Metadata) -> FileId {
    let (major, minor) = (libc::major(metadata.dev()), libc::minor(metadata.dev()));
    (format!("{major:02x}:{minor:02x}"), metadata.ino())
}

/// Opens the file at `path` if it is the mapped file `file`, or has the same build id.
/// `build_id_agrees` compares the build id with that of the mapping, and returns `None` if the
/// mapping's is unknown.
///
/// # Errors
/// The file cannot be opened, or is another file.
pub fn open(
    path: &Path,
    file: &FileId,
    build_id_agrees: impl FnOnce(&Image<'_>) -> Option<bool>,
) -> io::Result<FileBytes> {
    open_unchanged(path, file, i64::MAX, build_id_agrees)
}

/// Like [`open`], for a file that was mapped at `seen`, in nanoseconds since 1970. The mapping may
/// be gone by the time of the call, and another file may have reused its inode.
///
/// # Errors
/// See [`open`].
pub fn open_unchanged(
    path: &Path,
    file: &FileId,
    seen: i64,
    build_id_agrees: impl FnOnce(&Image<'_>) -> Option<bool>,
) -> io::Result<FileBytes> {
    let opened = open_regular(path)?;
    let is_it = || {
        let changed = changed(&opened.metadata()?).saturating_add(TICK);
        Ok::<_, io::Error>(is_mapped_as(&opened, file)? && changed <= seen)
    };
    let bytes = FileBytes::of(&opened)?;
    let image = Image::parse(bytes.bytes());
    match image.ok().and_then(|image| build_id_agrees(&image)) {
        Some(true) => Ok(bytes),
        None if is_it()? => Ok(bytes),
        _ => Err(io::Error::other(
            "the file at its path is not the one that is mapped",
        )),
    }
}

/// The longest time by which a file's change time precedes the actual change, in nanoseconds. The
/// kernel records the time of its last tick, and there are at least 100 ticks a second
/// (current_time, fs/inode.c).
const TICK: i64 = 10_000_000;

/// The file's change time, in nanoseconds since 1970.
fn changed(metadata: &Metadata) -> i64 {
    let ns = metadata.ctime().saturating_mul(1_000_000_000);
    ns.saturating_add(metadata.ctime_nsec())
}

/// True if the kernel identifies a mapping of this file as `id`.
///
/// # Errors
/// The file's metadata cannot be read, or the file cannot be mapped.
pub fn is_mapped_as(file: &File, id: &FileId) -> io::Result<bool> {
    let meta = file.metadata()?;
    if file_id(&meta) == *id {
        return Ok(true);
    }
    // An empty file cannot be mapped.
    if meta.len() == 0 {
        return Ok(false);
    }
    // SAFETY: the mapping's contents are never read.
    let map = unsafe { MmapOptions::new().len(1).map(file)? };
    let at = patcher::Avma(map.as_ptr() as u64);
    let text = fs::read("/proc/thread-self/maps")?;
    let maps = maps::parse(&String::from_utf8_lossy(&text));
    Ok(maps.iter().any(|m| m.contains(at) && m.file == *id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    /// The id of a mapping of the file, as the kernel shows it.
    fn id_of(path: &Path) -> FileId {
        let file = File::open(path).unwrap();
        // SAFETY: the mapping's contents are never read.
        let map = unsafe { MmapOptions::new().len(1).map(&file) }.unwrap();
        let at = patcher::Avma(map.as_ptr() as u64);
        let maps = maps::parse(&fs::read_to_string("/proc/self/maps").unwrap());
        maps.into_iter().find(|m| m.contains(at)).unwrap().file
    }

    struct Scratch(PathBuf);

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.0);
        }
    }

    #[test]
    fn only_the_mapped_file_is_opened() {
        const FOREVER: i64 = i64::MAX;
        let own = std::env::current_exe().unwrap();
        let (own, other) = (own.as_path(), Path::new("/bin/sh"));
        let id = id_of(own);
        let opens = |path: &Path, seen, agrees: Option<bool>| {
            open_unchanged(path, &id, seen, |_| agrees).is_ok()
        };
        assert!(opens(own, FOREVER, None), "by device and inode");
        assert!(opens(own, FOREVER, Some(true)));
        assert!(!opens(own, FOREVER, Some(false)), "rewritten in place");
        assert!(!opens(other, FOREVER, None));
        assert!(opens(other, FOREVER, Some(true)), "another copy of it");
        let last = changed(&fs::metadata(own).unwrap()) + TICK;
        assert!(opens(own, last, None));
        assert!(!opens(own, last - 1, None), "may have changed since");
        assert!(!opens(Path::new("/dev/null"), FOREVER, Some(true)));
    }

    #[test]
    fn the_kernel_is_asked_what_it_calls_a_file() {
        let path = std::env::temp_dir().join(format!("ipath-identity-{}", std::process::id()));
        let path = Scratch(path);
        fs::write(&path.0, b"contents").unwrap();
        let (id, file) = (id_of(&path.0), File::open(&path.0).unwrap());
        assert!(is_mapped_as(&file, &id).unwrap());
        let other = (id.0.clone(), id.1 + 1);
        assert!(!is_mapped_as(&file, &other).unwrap());
        let other = ("7f:7f".to_owned(), id.1);
        assert!(!is_mapped_as(&file, &other).unwrap());
    }
}
