//! Split DWARF (DWARF 5 section 7.3.2): the entries of units are in separate files, `.dwo`, or in a
//! package of these, `.dwp`.

use super::bytes::{Bytes, Reader};
use super::sections::Debug;
use super::separate::{Places, open};
use addr2line::{LookupContinuation, LookupResult, SplitDwarfLoad};
use gimli::{
    DebugInfo, Dwarf, DwarfFileType, DwarfPackage, DwoId, EndianReader, LittleEndian, Reader as _,
    Section as _, SectionId,
};
use std::cell::{Cell, OnceCell};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The most files that are looked for per program: each lookup may need another one.
const MAX_FILES: u32 = 4096;

/// The places of a program's split units.
pub(super) struct Split {
    places: Places,
    /// The package, opened at the first lookup. `None` if there is none.
    package: OnceCell<Option<DwarfPackage<Reader<'static>>>>,
    /// The number of lookups of files so far.
    looked_for: Cell<u32>,
    is_missing: Cell<bool>,
}

impl Split {
    pub(super) fn new(places: &Places) -> Self {
        Self {
            places: places.clone(),
            package: OnceCell::new(),
            looked_for: Cell::new(0),
            is_missing: Cell::new(false),
        }
    }

    /// True if a unit was looked for and not found.
    pub(super) fn is_missing(&self) -> bool {
        self.is_missing.get()
    }

    /// Completes a lookup with the split units that it needs. Units that are not found are left
    /// out.
    pub(super) fn complete<'d, L>(&self, mut looked: LookupResult<L>) -> L::Output
    where
        L: LookupContinuation<Buf = Reader<'d>>,
    {
        loop {
            match looked {
                LookupResult::Output(found) => return found,
                LookupResult::Load { load, continuation } => {
                    let found = self.find(&load);
                    self.is_missing.set(self.is_missing.get() | found.is_none());
                    looked = continuation.resume(found.map(Arc::new));
                }
            }
        }
    }

    /// The DWARF with the wanted unit, from the package or from a file. `None` if it is not found.
    fn find<'d>(&self, wanted: &SplitDwarfLoad<Reader<'d>>) -> Option<Dwarf<Reader<'d>>> {
        let count = self.looked_for.get();
        self.looked_for.set(count + 1);
        if count >= MAX_FILES {
            return None;
        }
        self.in_package(wanted).or_else(|| self.in_file(wanted))
    }

    fn in_package<'d>(&self, wanted: &SplitDwarfLoad<Reader<'d>>) -> Option<Dwarf<Reader<'d>>> {
        let package = self.package.get_or_init(|| self.open_package());
        // Rebuilt with this lifetime, because the package's own is longer.
        let package: &DwarfPackage<Reader<'d>> = package.as_ref()?;
        let found = package.find_cu(wanted.dwo_id, &wanted.parent).ok()??;
        beginning_with(found, wanted.dwo_id)
    }

    fn open_package(&self) -> Option<DwarfPackage<Reader<'static>>> {
        let files = [&self.places.file, &self.places.debug_file];
        let mut packages = files.into_iter().flatten().map(|file| {
            let mut name = file.clone().into_os_string();
            name.push(".dwp");
            PathBuf::from(name)
        });
        let debug = packages.find_map(|path| open(&path)?.split_debug())?;
        let section = |id: SectionId| Ok::<_, gimli::Error>(debug.reader(id, usize::MAX));
        let empty = EndianReader::new(Bytes::Borrowed(&[]), LittleEndian);
        DwarfPackage::load(section, empty).ok()
    }

    fn in_file<'d>(&self, wanted: &SplitDwarfLoad<Reader<'d>>) -> Option<Dwarf<Reader<'d>>> {
        let name = path_of(wanted.path.as_ref()?)?;
        let compiled_in = wanted.comp_dir.as_ref().and_then(path_of);
        // The order of gdb: first the compilation directory, then beside the program, which may
        // have been moved.
        let beside = self.places.beside.as_deref();
        let candidates = [
            compiled_in.map(|folder| folder.join(&name)),
            beside.map(|folder| folder.join(&name)),
            beside.and_then(|folder| Some(folder.join(name.file_name()?))),
        ];
        candidates.into_iter().flatten().find_map(|path| {
            let debug: Debug<'d> = open(&path)?.split_debug()?;
            let mut dwarf = debug.dwarf();
            dwarf.make_dwo(&wanted.parent);
            beginning_with(dwarf, wanted.dwo_id)
        })
    }
}

/// The DWARF starting at the unit with this id: type units may precede it. `None` if there is no
/// such unit.
fn beginning_with<'d>(mut dwarf: Dwarf<Reader<'d>>, id: DwoId) -> Option<Dwarf<Reader<'d>>> {
    debug_assert_eq!(dwarf.file_type, DwarfFileType::Dwo);
    let mut units = dwarf.units();
    let at = loop {
        let header = units.next().ok()??;
        let at = header.debug_info_offset()?;
        // A unit that cannot be read does not match.
        if dwarf.unit(header).is_ok_and(|unit| unit.dwo_id == Some(id)) {
            break at.0;
        }
    };
    let info = dwarf.debug_info.reader();
    let mut rest = info.clone();
    rest.skip(at).ok()?;
    dwarf.debug_info = DebugInfo::from(rest);
    Some(dwarf)
}

fn path_of(text: &Reader<'_>) -> Option<PathBuf> {
    let bytes = text.to_slice().ok()?;
    Some(Path::new(OsStr::from_bytes(&bytes)).to_owned())
}
