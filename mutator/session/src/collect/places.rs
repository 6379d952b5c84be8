//! The executable mappings of files, and what is known of each file.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;
use std::path::Path;
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

/// A call site as the tree has it ([`abi::segment::call_site`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Site(pub(super) u64);

impl Site {
    /// Where the call returns to.
    pub(super) fn address(self) -> Avma {
        Avma(address_and_module(self.0).0)
    }

    /// The number of the runtime's entry that it is in, where another file has been mapped there before.
    fn entry(self) -> Option<u32> {
        let (_, module) = address_and_module(self.0);
        u32::try_from(module.checked_sub(1)?).ok()
    }
}

/// An executable mapping of a file.
pub(super) struct Place {
    end: Avma,
    pub(super) path: String,
    file: FileId,
    pub(super) code: Code,
}

/// What is known of the code in a mapping.
pub(super) enum Code {
    /// Its file.
    Of(&'static OpenImage, Bias),
    /// Nothing but what its addresses are in its file; why that is not to be read.
    Unread {
        /// Address in the process minus that in the file; a position in the file counts as its address where
        /// the program headers are not known either.
        bias: Bias,
        /// One part of a sentence.
        cause: String,
    },
    /// Its file is no ELF file: addresses are those of the process.
    NoImage,
}

/// The mappings by first address.
#[derive(Default)]
pub(super) struct Places {
    known: BTreeMap<Avma, Place>,
    /// Executable mappings at the last look, so that the same ones are not looked at again.
    seen: Vec<(Range<Avma>, FileId)>,
    /// The runtime's entries that have been looked at: where they are, and what tells their files apart.
    entries: Vec<(Range<Avma>, Identity)>,
    /// Those of them, by number, where one file has come to the place of another.
    shared: BTreeMap<u32, Shared>,
}

/// What tells the file of a mapping, at its place, from others: which it is, which build of it, and what is added to its positions.
type Identity = (FileId, u64, Bias);

/// A mapping where others have been.
enum Shared {
    /// It has been looked at.
    Place(Place),
    /// What is needed for that. There may be thousands, of which paths go through a few.
    Unseen(Box<Unseen>),
}

impl Shared {
    fn look(&mut self) -> &mut Place {
        if let Self::Unseen(unseen) = self {
            *self = Self::Place(unseen.look());
        }
        match self {
            Self::Place(place) => place,
            Self::Unseen(_) => unreachable!("it has just been looked at"),
        }
    }
}

impl Places {
    /// The address of a call, and the mapping that it is or was in.
    pub(super) fn find(&mut self, site: Site) -> (Avma, Option<&Place>) {
        let call = |address: Avma| Avma(address.0.wrapping_sub(1));
        let entry = site.entry().filter(|entry| self.shared.contains_key(entry));
        let at = call(entry.map_or(Avma(site.0), |_| site.address()));
        // Else what was there first.
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

    /// The mapping that holds this address now.
    pub(super) fn at(&self, address: Avma) -> Option<&Place> {
        let (_, place) = self.known.range(..=address).next_back()?;
        (address < place.end).then_some(place)
    }

    /// True if this file is the program loader (ld.so(8)).
    pub(super) fn is_loader(&self, image: &'static OpenImage) -> bool {
        let is_it = |place: &Place| match place.code {
            Code::Of(of, _) => std::ptr::eq(of, image),
            _ => false,
        };
        let mut of_image = self.known.values().filter(|place| is_it(place));
        let name = |place: &Place| file_name(&place.path).to_owned();
        let name = of_image.next().map(name).unwrap_or_default();
        name.starts_with("ld-") || name.starts_with("ld.so")
    }

    /// Takes the symbols of debug files that have come since.
    pub(super) fn renew(&mut self) {
        let seen = self.shared.values_mut().filter_map(|shared| match shared {
            Shared::Place(place) => Some(place),
            Shared::Unseen(_) => None,
        });
        for place in self.known.values_mut().chain(seen) {
            if let Code::Of(image, _) = &mut place.code {
                *image = images::renewed(image, place.path.as_ref());
            }
        }
    }

    /// The paths of all files that have been mapped.
    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.known.values().map(|place| Path::new(&place.path))
    }

    /// The file at this path.
    pub(super) fn image(&self, path: &str) -> Option<&'static OpenImage> {
        let mut of_path = self.known.values().filter(|p| p.path == path);
        of_path.find_map(|p| match p.code {
            Code::Of(image, _) => Some(image),
            _ => None,
        })
    }

    /// The path of the file that is mapped there, if it is one.
    pub(super) fn file(&self, start: Avma) -> Option<&str> {
        let place = self.known.get(&start)?;
        (!matches!(place.code, Code::NoImage)).then_some(&place.path)
    }

    /// Takes in what the process has mapped now; the mappings that are new.
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

    fn learn(&mut self, module: &Module, mapping: &Mapping) -> Option<Range<Avma>> {
        let Range { start, end } = mapping.range;
        let same = |p: &Place| p.path == module.path && p.file == mapping.file && p.end == end;
        let is_read = |p: &Place| matches!(p.code, Code::Of(..));
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
            Ok(image) => match bias_of(image.image, start, mapping.offset) {
                Some(bias) => Code::Of(image, bias),
                None => unread("its segments are not where the file is mapped".to_owned()),
            },
            Err(OpenError::Image(_)) => Code::NoImage,
            Err(error) => unread(error.to_string()),
        };
        let place = Place {
            end,
            path: module.path.clone(),
            file: mapping.file.clone(),
            code,
        };
        self.known.insert(start, place);
        Some(start..end)
    }

    /// Takes in what the runtime has seen; true where one file has come to the place of another by that.
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
        let used = u32::try_from(header.modules_used.load(Acquire)).unwrap_or(MOST);
        let read = |index| segment.module(index).and_then(Published::read);
        let shared = self.shared.len();
        for index in self.entries.len() as u32..used.min(MOST) {
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
                        // As long as it is there.
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

/// The bias under which positions in the file are its addresses.
fn by_position(start: Avma, offset: FileOffset) -> Bias {
    Bias::between(Svma(offset.0), start)
}

/// The process as it is by now. It may have ended, or become another program by exec(2): what it has mapped
/// counts for an entry only if it is the same file at the same place.
struct Live {
    /// Its root folder, if it runs.
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

    /// The module that a published mapping belongs to.
    fn module(&self, published: &Published) -> Option<&Module> {
        let is_it = |m: &Mapping| {
            m.range.start == published.start
                && m.offset == published.offset
                && m.file == published.file
        };
        self.modules.iter().find(|m| m.code.iter().any(is_it))
    }
}

/// Entries of the runtime that are looked at: as many as it has room for. What the segment says of that room is
/// not believed.
const MOST: u32 = 1 << 14;

/// What an entry of the runtime says.
struct Published {
    start: Avma,
    end: Avma,
    offset: FileOffset,
    path: String,
    file: FileId,
    seen_tsc: u64,
    build: u64,
}

impl Published {
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

    /// What tells its file, at its place, from others.
    fn identity(&self) -> Identity {
        let bias = by_position(self.start, self.offset);
        (self.file.clone(), self.build, bias)
    }

    /// What is needed to look at its file, whenever that is.
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
            // Several have been there one after the other.
            builds: builds.filter_map(|m| m.build_id.clone()).collect(),
            module: live.module(&self).cloned(),
            root: live.root.clone(),
            is_first,
            mapping: self,
        }
    }
}

/// A mapping that the runtime has seen, and what tells its file.
struct Unseen {
    mapping: Published,
    /// When it was seen, in nanoseconds since 1970, at the earliest.
    since: i64,
    /// The build ids that the session's document gives for such a module.
    builds: Vec<String>,
    /// The module of the process that it is, while that is there.
    module: Option<Module>,
    /// The root folder of the process.
    root: Option<String>,
    /// True if no other has been there before: what its file begins with may have changed since (strip(1)).
    is_first: bool,
}

impl Unseen {
    fn look(&self) -> Place {
        let Published {
            end, path, file, ..
        } = &self.mapping;
        Place {
            end: *end,
            path: path.clone(),
            file: file.clone(),
            code: self.code(),
        }
    }

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
            Ok(image) if !self.is_build(image) => {
                unread("it has been built anew since it was mapped".to_owned())
            }
            Ok(image) => match bias_of(image.image, *start, *offset) {
                Some(bias) => Code::Of(image, bias),
                None => unread("its segments are not where the file was mapped".to_owned()),
            },
            Err(OpenError::Image(_)) => Code::NoImage,
            Err(error) => unread(error.to_string()),
        }
    }

    /// The file, as it was mapped where that can still be had.
    fn image(&self, path: &str) -> Result<&'static OpenImage, OpenError> {
        if let Some(former) = images::former(path, self.mapping.build) {
            return Ok(former);
        }
        let open = || match &self.module {
            Some(module) => images::of_module(module),
            None => self.open(),
        };
        let image = open()?;
        if self.is_build(image) {
            return Ok(image);
        }
        images::forget(path, &self.mapping.file);
        open()
    }

    fn is_build(&self, image: &OpenImage) -> bool {
        let build = self.mapping.build;
        image.is_intact() && (self.is_first || build == 0 || image.is_build(build))
    }

    fn open(&self) -> Result<&'static OpenImage, OpenError> {
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

    /// Whether the image is what was mapped, where a build id tells: the one that the session's document gives for this module, or
    /// the one that is in what the runtime has read.
    fn build_id_agrees(&self, image: &Image<'_>) -> Option<bool> {
        let id = image.build_id();
        if id.is_some() && images::build_of(image.data()) == Some(self.mapping.build) {
            return Some(true);
        }
        self.builds.first()?;
        Some(self.builds.contains(&hex(id.unwrap_or_default())))
    }
}
