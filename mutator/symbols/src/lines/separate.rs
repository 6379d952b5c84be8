//! Separate debug files, as distributions ship them.
//!
//! They are found by build id or `.gnu_debuglink`, in the places where gdb looks (GDB manual,
//! "Separate Debug Files") and in the cache of debuginfod's client. The shared supplement of dwz is
//! found by `.gnu_debugaltlink`.

use super::bytes::Bytes;
use super::mini;
use super::sections::{Debug, Sections};
use crate::debuginfod::{self, hex};
use ipath_base::cache::Cache;
use ipath_base::files::FileBytes;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, PoisonError};

/// The places to look for separate debug files.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// The file itself.
    pub file: Option<PathBuf>,
    /// The debug file that was found. Packages of split DWARF may be beside it.
    pub debug_file: Option<PathBuf>,
    /// The directory of the file itself.
    pub beside: Option<PathBuf>,
    /// Directories that hold debug files for the whole system, such as `/usr/lib/debug`.
    pub roots: Vec<PathBuf>,
}

impl Places {
    /// The usual places for a file at `path`.
    pub fn for_file(path: &Path) -> Self {
        Self {
            file: Some(path.to_owned()),
            debug_file: None,
            beside: path.parent().map(Path::to_owned),
            roots: vec![PathBuf::from("/usr/lib/debug")],
        }
    }
}

/// A separate debug file and the supplement it refers to.
pub(super) struct Separate {
    /// The path of the debug file.
    pub(super) path: PathBuf,
    /// The sections of the debug file.
    pub(super) sections: Sections<'static>,
    /// The DWARF of the supplement. `None` if there is none.
    pub(super) supplement: Option<Debug<'static>>,
}

/// The debug file that belongs to `image`. `None` if none is found.
pub(super) fn debug_file_of(image: &Sections<'_>, places: &Places) -> Option<Separate> {
    let (sections, path) = file_of(image, places, |file| file.debug().is_some())?;
    let beside = path.parent().map(Path::to_owned);
    let supplement = supplement_of(
        &sections,
        &Places {
            beside,
            ..places.clone()
        },
    );
    Some(Separate {
        path,
        sections,
        supplement,
    })
}

/// The file with the function symbols that were stripped from the ELF file `data`. The symbols may
/// be in `data` itself. `None` if the file has its symbols, or if there is no such file.
pub fn symbol_file(data: &[u8], places: &Places) -> Option<FileBytes> {
    const SYMBOLS: &str = ".symtab";
    let image = Sections::parse(Bytes::Borrowed(data))?;
    if image.get(SYMBOLS).is_some() {
        return None;
    }
    let separate = file_of(&image, places, |file| file.get(SYMBOLS).is_some());
    let separate = separate.and_then(|(sections, _)| sections.into_file());
    separate.or_else(|| Some(FileBytes::of_bytes(mini::file_in(&image)?)))
}

/// The separate file that belongs to `image` and satisfies `has`, and its path. `None` if none is
/// found.
fn file_of(
    image: &Sections<'_>,
    places: &Places,
    has: impl Fn(&Sections<'_>) -> bool,
) -> Option<(Sections<'static>, PathBuf)> {
    let id = image.build_id();
    let by_id = id
        .as_deref()
        .into_iter()
        .flat_map(|id| paths_by_id(id, places));
    // A file under the build id of another one does not belong here.
    let mut found = by_id.filter_map(|path| Some((open(&path)?, path)));
    let found = found.find(|(file, _)| file.build_id() == id && has(file));
    let local = found.or_else(|| by_link(image, places, &has));
    local.or_else(|| {
        let path = debuginfod::known(id.as_deref()?)?;
        let fetched = open(&path).filter(|file| file.build_id() == id && has(file))?;
        Some((fetched, path))
    })
}

/// Checks whether the file at `path` is the debug file with this build id. Returns the build id of
/// the supplement that it refers to, if any. `None` for any other file.
pub fn is_debug_file_of(path: &Path, id: &[u8]) -> Option<Option<Vec<u8>>> {
    let file = open(path).filter(|file| file.build_id().as_deref() == Some(id))?;
    let link = file.get(SUPPLEMENT);
    Some(link.and_then(|link| Some(supplement_link(&link)?.1.to_owned())))
}

/// The section that names a supplement: a path with a final 0, and a build id.
const SUPPLEMENT: &str = ".gnu_debugaltlink";

/// The path and the build id in the contents of the section. `None` if the path has no end.
fn supplement_link(link: &[u8]) -> Option<(&Path, &[u8])> {
    let end = link.iter().position(|&b| b == 0)?;
    let path = Path::new(OsStr::from_bytes(&link[..end]));
    Some((path, &link[end + 1..]))
}

/// The DWARF of the supplement that `file` refers to. `None` if it refers to none, or if none is
/// found.
pub(super) fn supplement_of(file: &Sections<'_>, places: &Places) -> Option<Debug<'static>> {
    let link = file.get(SUPPLEMENT)?;
    let (path, id) = supplement_link(&link)?;
    let named = places.beside.iter().map(|dir| dir.join(path));
    let fetched = debuginfod::known(id);
    let mut candidates = named.chain(paths_by_id(id, places)).chain(fetched);
    candidates.find_map(|path| {
        let sections = open(&path)?;
        (sections.build_id().as_deref() == Some(id)).then(|| sections.debug())?
    })
}

/// The paths of debug files with this build id below the directories in [`Places::roots`].
fn paths_by_id(id: &[u8], places: &Places) -> impl Iterator<Item = PathBuf> {
    let hex = hex(id);
    // The first byte is the name of the directory. An id of fewer than two bytes names no file.
    let name = (hex.len() > 2).then(|| format!(".build-id/{}/{}.debug", &hex[..2], &hex[2..]));
    let roots = places.roots.clone();
    roots
        .into_iter()
        .filter_map(move |root| Some(root.join(name.as_deref()?)))
}

/// The separate file that `.gnu_debuglink` names and that satisfies `has`, and its path. `None` if
/// none with the right build id or checksum is found.
fn by_link(
    image: &Sections<'_>,
    places: &Places,
    has: impl Fn(&Sections<'_>) -> bool,
) -> Option<(Sections<'static>, PathBuf)> {
    let link = image.get(".gnu_debuglink")?;
    let end = link.iter().position(|&b| b == 0)?;
    let name = Path::new(OsStr::from_bytes(&link[..end])).file_name()?;
    // The checksum follows the name, aligned to 4.
    let at = (end + 1).next_multiple_of(4);
    let crc = u32::from_le_bytes(link.get(at..at + 4)?.try_into().ok()?);
    let beside = places.beside.as_deref()?;
    let below = |root: &PathBuf| {
        root.join(beside.strip_prefix("/").unwrap_or(beside))
            .join(name)
    };
    let candidates = [beside.join(name), beside.join(".debug").join(name)]
        .into_iter()
        .chain(places.roots.iter().map(below));
    candidates.into_iter().find_map(|path| {
        let sections = open(&path).filter(&has)?;
        // The checksum reads the whole file. It is computed only if build ids do not decide.
        let belongs = match (image.build_id(), sections.build_id()) {
            (Some(a), Some(b)) => a == b,
            _ => checksum(sections.file()) == crc,
        };
        belongs.then_some((sections, path))
    })
}

fn checksum(file: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(file);
    crc.sum()
}

/// A file's path, and its device, inode and time of the last change in seconds and nanoseconds.
type Key = (PathBuf, [i64; 4]);

/// The most debug files to keep open while they are not in use.
const MAX_UNUSED: usize = 128;

/// The open debug files.
static OPENED: LazyLock<Mutex<Cache<Key, FileBytes>>> =
    LazyLock::new(|| Mutex::new(Cache::new(MAX_UNUSED)));

/// The file at a path. It is opened once, until it changes. `None` if it cannot be opened or is no
/// ELF file.
pub(super) fn open(path: &Path) -> Option<Sections<'static>> {
    let meta = fs::metadata(path).ok()?;
    let (device, inode) = (meta.dev() as i64, meta.ino() as i64);
    let key = (
        path.to_owned(),
        [device, inode, meta.ctime(), meta.ctime_nsec()],
    );
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    let file = opened.get_or_make(key, || FileBytes::open(path)).ok()?;
    let len = file.bytes().len();
    Sections::parse(Bytes::OfFile(file, 0..len))
}
