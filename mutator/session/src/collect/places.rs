//! The executable mappings of files, and the images of these files.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::hint::black_box;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use abi::segment::{Header, ModuleEntry, address_and_module, device_numbers};
use patcher::image::Image;
use patcher::{Avma, Bias, FileOffset, Svma};

use crate::segment::{ModuleDoc, Segment};
use ipath_base::files::file_name;
use ipath_profile::clock;
use ipath_symbols::debuginfod::hex;
use ipath_symbols::images::{self, OpenError, OpenImage};
use ipath_target::process::identity::{self, FileId};
use ipath_target::process::modules::{Module, VDSO, bias_of, modules};
use ipath_target::process::{Mapping, Presence, Process};

/// A call site, as in the tree ([`abi::segment::call_site`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Site(pub(super) u64);

impl Site {
    /// The return address.
    pub(super) fn address(self) -> Avma {
        Avma(address_and_module(self.0).0)
    }

    /// The number of the runtime's module entry that contains the return address. `None` if no
    /// other file was mapped at the address before.
    fn entry(self) -> Option<u32> {
        let (_, module) = address_and_module(self.0);
        u32::try_from(module.checked_sub(1)?).ok()
    }
}

/// An executable mapping of a file.
pub(super) struct CodeMapping {
    /// The first address after the mapping.
    end: Avma,
    pub(super) path: String,
    pub(super) file: FileId,
    pub(super) code: Code,
}

/// The code in a mapping.
pub(super) enum Code {
    /// The image of the mapping's file, and the bias.
    Of(Arc<OpenImage>, Bias),
    /// A file that cannot be read. Only addresses in it are known.
    Unread {
        /// The address in the process minus the address in the file. If the program headers are
        /// unknown, a position in the file counts as its address.
        bias: Bias,
        /// The reason, as part of a sentence.
        cause: String,
    },
    /// The file is not an ELF file: addresses are those of the process.
    NoImage,
}

/// The mappings by first address.
#[derive(Default)]
pub(super) struct Places {
    known: BTreeMap<Avma, CodeMapping>,
    /// Executable mappings at the last look. If they have not changed, nothing needs to be done.
    seen: Vec<(Range<Avma>, FileId)>,
    /// The ranges of the runtime's module entries that have been read, and the identities of their
    /// files.
    entries: Vec<(Range<Avma>, Identity)>,
    /// The entries, by number, at whose place one file has replaced another.
    shared: BTreeMap<u32, Shared>,
}

/// Identifies the file of a mapping at its place: device and inode, checksum of the build, and bias
/// of positions in the file.
type Identity = (FileId, u64, Bias);

/// A mapping at a place that several files have had.
enum Shared {
    /// The mapping's file has been opened.
    Seen(CodeMapping),
    /// The data that is needed to open the mapping's file. There may be thousands, and paths go
    /// through only a few.
    Unseen(Box<Unseen>),
}

impl Shared {
    /// The mapping. `None` if its file has not been opened.
    fn seen(&self) -> Option<&CodeMapping> {
        match self {
            Self::Seen(place) => Some(place),
            Self::Unseen(_) => None,
        }
    }

    /// The mapping. Opens its file if that has not been opened.
    fn look(&mut self) -> &mut CodeMapping {
        if let Self::Unseen(unseen) = self {
            *self = Self::Seen(unseen.look());
        }
        match self {
            Self::Seen(place) => place,
            Self::Unseen(_) => unreachable!("it has just been looked at"),
        }
    }
}

impl Places {
    /// An address inside of the call (the return address minus 1), and the mapping that it is or
    /// was in. `None` if no mapping of a file is known there.
    pub(super) fn find(&mut self, site: Site) -> (Avma, Option<&CodeMapping>) {
        let call = |address: Avma| Avma(address.0.wrapping_sub(1));
        let entry = site.entry().filter(|entry| self.shared.contains_key(entry));
        let at = call(entry.map_or(Avma(site.0), |_| site.address()));
        // Otherwise, use the mapping that was there first.
        let is_first = |entry: &&u32| {
            let range = self.entries.get(**entry as usize);
            range.is_some_and(|(range, _)| range.contains(&at))
        };
        let entry = entry.or_else(|| self.shared.keys().find(is_first).copied());
        if let Some(shared) = entry.and_then(|entry| self.shared.get_mut(&entry)) {
            return (at, Some(shared.look()));
        }
        let known = self.known.range(..=at).next_back();
        let known = known.filter(|(_, place)| at < place.end);
        (at, known.map(|(_, place)| place))
    }

    /// The mapping that holds this address now. `None` if none does.
    pub(super) fn at(&self, address: Avma) -> Option<&CodeMapping> {
        let (_, place) = self.known.range(..=address).next_back()?;
        (address < place.end).then_some(place)
    }

    /// True if this file is the program loader (ld.so(8)).
    pub(super) fn is_loader(&self, image: &Arc<OpenImage>) -> bool {
        let is_it = |place: &CodeMapping| match &place.code {
            Code::Of(of, _) => Arc::ptr_eq(of, image),
            _ => false,
        };
        let mut of_image = self.known.values().filter(|place| is_it(place));
        let name = |place: &CodeMapping| file_name(&place.path).to_owned();
        let name = of_image.next().map(name).unwrap_or_default();
        name.starts_with("ld-") || name.starts_with("ld.so")
    }

    /// Replaces images by those with the symbols of debug files that have arrived.
    pub(super) fn renew(&mut self) {
        let seen = self.shared.values_mut().filter_map(|shared| match shared {
            Shared::Seen(place) => Some(place),
            Shared::Unseen(_) => None,
        });
        for place in self.known.values_mut().chain(seen) {
            if let Code::Of(image, _) = &mut place.code {
                *image = images::renewed(image, place.path.as_ref());
            }
        }
    }

    /// The paths of all files with known mappings.
    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.known.values().map(|place| Path::new(&place.path))
    }

    /// The image of a module of the session, in the build that the session describes. `None` if it
    /// is not open, or if the file has been overwritten since it was opened.
    pub(super) fn image(&self, module: &ModuleDoc) -> Option<&Arc<OpenImage>> {
        let mut of_path = self.opened().filter(|p| p.path == module.path);
        of_path.find_map(|place| match &place.code {
            Code::Of(image, _) if image.is_intact() && module.is_of(&place.file, image) => {
                Some(image)
            }
            _ => None,
        })
    }

    /// The mappings whose files have been opened, or could not be.
    fn opened(&self) -> impl Iterator<Item = &CodeMapping> {
        let seen = self.shared.values().filter_map(Shared::seen);
        self.known.values().chain(seen)
    }

    /// True if a file was truncated after it was opened. Code that was read from it may be zeroes.
    pub(super) fn is_cut(&self) -> bool {
        self.opened().any(|place| match &place.code {
            Code::Of(image, _) => {
                let bytes = image.bytes();
                // In the last page that is left, the lost bytes read as zeroes without a signal.
                // The last byte of the map is in a lost page.
                black_box(bytes.bytes().last().copied());
                bytes.is_cut()
            }
            _ => false,
        })
    }

    /// The build id of the file with this path. `None` if it is unknown, or if several builds have
    /// had the path.
    pub(super) fn build_id(&self, path: &str) -> Option<String> {
        let of_path = self.opened().filter(|p| p.path == path);
        let mut ids = of_path.filter_map(|place| match &place.code {
            Code::Of(image, _) => Some(image.image().build_id()),
            _ => None,
        });
        let first = ids.next()??;
        ids.all(|id| id == Some(first)).then(|| hex(first))
    }

    /// The path of the file whose mapping starts at `start`. `None` if no known mapping starts at
    /// that address, or if the file is not an ELF file.
    pub(super) fn file(&self, start: Avma) -> Option<&str> {
        let place = self.known.get(&start)?;
        (!matches!(place.code, Code::NoImage)).then_some(&place.path)
    }

    /// Learns the current mappings of the process, and returns the address ranges of the new ones.
    /// Returns none if the mappings cannot be read.
    pub(super) fn learn_maps(&mut self, process: &Process) -> Vec<Range<Avma>> {
        let Ok(maps) = process.maps() else {
            return Vec::new();
        };
        let code = |m: &&Mapping| m.execute && !m.name.is_empty();
        let now: Vec<(Range<Avma>, FileId)> = maps
            .iter()
            .filter(code)
            .map(|m| (m.range.clone(), m.file.clone()))
            .collect();
        if now == self.seen {
            return Vec::new();
        }
        self.seen = now;
        let modules = modules(process, &maps);
        images::forget_changed(&modules);
        let mut new = Vec::new();
        for module in modules {
            for mapping in &module.code {
                new.extend(self.learn(&module, mapping));
            }
        }
        new
    }

    /// Learns a mapping of a module, and returns its address range. `None` if the mapping is known
    /// and its file was read.
    fn learn(&mut self, module: &Module, mapping: &Mapping) -> Option<Range<Avma>> {
        let Range { start, end } = mapping.range;
        let same =
            |p: &CodeMapping| p.path == module.path && p.file == mapping.file && p.end == end;
        let is_read = |p: &CodeMapping| matches!(p.code, Code::Of(..));
        if self
            .known
            .get(&start)
            .is_some_and(|p| same(p) && is_read(p))
        {
            return None;
        }
        let unread = |cause: String| Code::Unread {
            bias: module
                .bias_in_memory()
                .unwrap_or_else(|| by_position(start, mapping.offset)),
            cause,
        };
        let code = match images::of_module(module) {
            Ok(image) => match bias_of(image.image(), start, mapping.offset) {
                Some(bias) => Code::Of(image, bias),
                None => unread("its segments do not match its mappings".to_owned()),
            },
            Err(OpenError::Image(_)) => Code::NoImage,
            Err(error) => unread(error.to_string()),
        };
        let place = CodeMapping {
            end,
            path: module.path.clone(),
            file: mapping.file.clone(),
            code,
        };
        self.known.insert(start, place);
        Some(start..end)
    }

    /// Learns the runtime's module entries. True if these show that one file has replaced another.
    pub(super) fn learn_published(
        &mut self,
        segment: &Segment,
        documented: &[ModuleDoc],
        process: &Process,
    ) -> bool {
        let header = segment.header();
        let mut live = None;
        let mut unseen = |published: Published, is_first| {
            let live = live.get_or_insert_with(|| Live::of(process));
            published.unseen(header, documented, live, is_first)
        };
        let used = u32::try_from(header.modules_used.load(Acquire)).unwrap_or(MAX_ENTRIES);
        let read = |index| segment.module(index).and_then(Published::read);
        let shared = self.shared.len();
        for index in self.entries.len() as u32..used.min(MAX_ENTRIES) {
            let Some(new) = read(index) else {
                break;
            };
            let (range, file) = (new.start..new.end, new.identity());
            let overlaps = |(other, of): &(Range<Avma>, _)| {
                other.start < range.end && range.start < other.end && *of != file
            };
            let others = self.entries.iter().enumerate();
            let others = others.filter(|(_, other)| overlaps(other));
            let others: Vec<u32> = others.map(|(other, _)| other as u32).collect();
            self.entries.push((range, file));
            if !others.is_empty() {
                for index in others.into_iter().chain([index]) {
                    if let Entry::Vacant(vacant) = self.shared.entry(index)
                        && let Some(published) = read(index)
                    {
                        let unseen = unseen(published, false);
                        let is_there = unseen.module.is_some();
                        let shared = vacant.insert(Shared::Unseen(Box::new(unseen)));
                        // Open it while it is there.
                        if is_there {
                            shared.look();
                        }
                    }
                }
            } else {
                let known = self.known.entry(new.start);
                known.or_insert_with(|| unseen(new, true).look());
            }
        }
        self.shared.len() != shared
    }
}

/// The bias if positions in the file are its addresses.
fn by_position(start: Avma, offset: FileOffset) -> Bias {
    Bias::between(Svma(offset.0), start)
}

/// The present state of the process. It may have ended, or have replaced its program by exec(2). A
/// mapping counts for an entry only if it is of the same file at the same place.
struct Live {
    /// The process's root folder. `None` if its program no longer runs.
    root: Option<String>,
    modules: Vec<Module>,
}

impl Live {
    fn of(process: &Process) -> Self {
        if process.life() != Presence::Here {
            return Self {
                root: None,
                modules: Vec::new(),
            };
        }
        let maps = process.maps().unwrap_or_default();
        Self {
            root: Some(format!("/proc/{}/root", process.entry())),
            modules: modules(process, &maps),
        }
    }

    /// The module that a published mapping belongs to. `None` if the process no longer has it.
    fn module(&self, published: &Published) -> Option<&Module> {
        let is_it = |m: &Mapping| {
            m.range.start == published.start
                && m.offset == published.offset
                && m.file == published.file
        };
        self.modules.iter().find(|m| m.code.iter().any(is_it))
    }
}

/// The maximum number of entries to read, which is the runtime's capacity. The capacity in the
/// segment is not trusted.
const MAX_ENTRIES: u32 = 1 << 14;

/// The contents of a module entry of the runtime.
struct Published {
    start: Avma,
    end: Avma,
    offset: FileOffset,
    path: String,
    file: FileId,
    /// The time-stamp counter when the runtime saw the mapping.
    seen_tsc: u64,
    /// The checksum of the file's build; 0 if it is unknown.
    build: u64,
}

impl Published {
    /// Reads an entry. `None` if the entry is not complete, or not valid.
    fn read(entry: &ModuleEntry) -> Option<Self> {
        let len = entry.path_len.load(Acquire) as usize;
        if len == 0 || len > abi::segment::MODULE_PATH {
            return None;
        }
        let words = entry.path.iter();
        let bytes = words.flat_map(|w| w.load(Relaxed).to_le_bytes());
        let path = String::from_utf8_lossy(&bytes.take(len).collect::<Vec<_>>()).into_owned();
        let (major, minor) = device_numbers(entry.device.load(Relaxed));
        let path = path.strip_suffix(" (deleted)").unwrap_or(&path);
        Some(Self {
            start: Avma(entry.start.load(Relaxed)),
            end: Avma(entry.end.load(Relaxed)),
            offset: FileOffset(entry.offset.load(Relaxed)),
            path: path.to_owned(),
            file: (
                format!("{major:02x}:{minor:02x}"),
                entry.inode.load(Relaxed),
            ),
            seen_tsc: entry.seen_tsc.load(Relaxed),
            build: entry.build.load(Relaxed),
        })
    }

    /// Identifies its file at its place.
    fn identity(&self) -> Identity {
        let bias = by_position(self.start, self.offset);
        (self.file.clone(), self.build, bias)
    }

    /// The data that is needed to open the mapping's file later.
    fn unseen(
        self,
        header: &Header,
        documented: &[ModuleDoc],
        live: &Live,
        is_first: bool,
    ) -> Unseen {
        let is_it = |m: &&ModuleDoc| {
            let Range { start, end } = m.code;
            m.path == self.path && start < self.end && self.start < end
        };
        let builds = documented.iter().filter(is_it);
        Unseen {
            since: i64::try_from(clock::earliest_unix_ns(header, self.seen_tsc))
                .unwrap_or(i64::MAX),
            // Several may have been there one after the other.
            builds: builds.filter_map(|m| m.build_id.clone()).collect(),
            module: live.module(&self).cloned(),
            root: live.root.clone(),
            is_first,
            mapping: self,
        }
    }
}

/// A mapping that the runtime has seen, and the data that identifies its file.
struct Unseen {
    mapping: Published,
    /// The earliest time at which the mapping was seen, in nanoseconds since 1970.
    since: i64,
    /// The build ids of this module in the session's document.
    builds: Vec<String>,
    /// The corresponding module of the process. `None` if it was no longer mapped.
    module: Option<Module>,
    /// The root folder of the process. `None` if its program no longer runs.
    root: Option<String>,
    /// True if no other file was mapped at the place before. The beginning of the file may have
    /// changed since it was mapped (strip(1)).
    is_first: bool,
}

impl Unseen {
    /// Opens the mapping's file.
    fn look(&self) -> CodeMapping {
        let Published {
            end, path, file, ..
        } = &self.mapping;
        CodeMapping {
            end: *end,
            path: path.clone(),
            file: file.clone(),
            code: self.code(),
        }
    }

    /// The code of the mapping's file, or the reason why it cannot be read.
    fn code(&self) -> Code {
        let Published {
            start,
            offset,
            path,
            ..
        } = &self.mapping;
        let unread = |cause: String| Code::Unread {
            bias: by_position(*start, *offset),
            cause,
        };
        let image = match path.as_str() {
            VDSO => images::vdso(),
            path if path.starts_with('/') => self.image(path),
            _ => return Code::NoImage,
        };
        match image {
            Ok(image) if !self.is_build(&image) => {
                unread("it has been rebuilt since it was mapped".to_owned())
            }
            Ok(image) => match bias_of(image.image(), *start, *offset) {
                Some(bias) => Code::Of(image, bias),
                None => unread("its segments do not match its mappings".to_owned()),
            },
            Err(OpenError::Image(_)) => Code::NoImage,
            Err(error) => unread(error.to_string()),
        }
    }

    /// The image of the file, in the version that was mapped if that is still available.
    fn image(&self, path: &str) -> Result<Arc<OpenImage>, OpenError> {
        if let Some(former) = images::former(path, self.mapping.build) {
            return Ok(former);
        }
        let open = || match &self.module {
            Some(module) => images::of_module(module),
            None => self.open(),
        };
        let image = open()?;
        if self.is_build(&image) {
            return Ok(image);
        }
        images::forget(path, &self.mapping.file);
        open()
    }

    /// True if the image is intact and is of the mapped build, or if the mapped build is unknown.
    fn is_build(&self, image: &OpenImage) -> bool {
        let build = self.mapping.build;
        image.is_intact() && (self.is_first || build == 0 || image.is_build(build))
    }

    /// Opens the file in the root folder of the process, or else at its path.
    fn open(&self) -> Result<Arc<OpenImage>, OpenError> {
        let Published { path, file, .. } = &self.mapping;
        let in_root = self.root.as_ref().map(|root| format!("{root}{path}"));
        let paths = in_root.iter().chain([path]).map(Path::new);
        let agrees = |image: &Image<'_>| self.build_id_agrees(image);
        images::of_file(path, file, || {
            let mut cause = None;
            for path in paths {
                match identity::open_unchanged(path, file, self.since, agrees) {
                    Ok(bytes) => return Ok(bytes),
                    Err(error) => cause = cause.or(Some(error)),
                }
            }
            Err(OpenError::Io(
                cause.unwrap_or_else(|| std::io::ErrorKind::NotFound.into()),
            ))
        })
    }

    /// Compares the build id of the image with the mapped file's. The mapped file's build id is in
    /// the bytes that the runtime has checksummed, or in the session's document. `None` if both are
    /// unknown.
    fn build_id_agrees(&self, image: &Image<'_>) -> Option<bool> {
        let id = image.build_id();
        if id.is_some() && images::build_of(image.data()) == Some(self.mapping.build) {
            return Some(true);
        }
        self.builds.first()?;
        Some(self.builds.contains(&hex(id.unwrap_or_default())))
    }
}
