//! The ELF files a process has loaded.

use std::collections::HashMap;
use std::fs::Metadata;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};

use patcher::elf::LinkTables;
use patcher::image::{Image, Segment};
use patcher::{Avma, Bias, FileOffset, Svma};

use super::identity::{self, FileId};
use super::remapped::{self, Mapped};
use super::{Mapping, Process, Root};
use ipath_base::cache::Cache;
use ipath_base::files::{FileBytes, Version, file_name, open_regular};

/// The kernel's name for its own code in every process.
pub const VDSO: &str = "[vdso]";

/// Files that stay open while nothing uses them. A program and its libraries are seldom more.
pub const MAX_UNUSED: usize = 512;

/// The opened files, by path and file id.
fn opened() -> MutexGuard<'static, Cache<(String, FileId), FileBytes>> {
    static OPENED: LazyLock<Mutex<Cache<(String, FileId), FileBytes>>> =
        LazyLock::new(|| Mutex::new(Cache::new(MAX_UNUSED)));
    OPENED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Drops a file from the cache, so that the next open of a module reads it again.
pub fn forget(path: &str, file: &FileId) {
    opened().remove(&(path.to_owned(), file.clone()));
}

/// A loaded ELF file: its mappings, and access to its contents.
#[derive(Clone, Debug)]
pub struct Module {
    /// The path as the process sees it, or `[vdso]` for the kernel's own.
    pub path: String,
    /// The run-time addresses from the module's first to its last mapping.
    pub range: Range<Avma>,
    /// The module's executable mappings.
    pub code: Vec<Mapping>,
    /// The mapping of the file's beginning, if it is readable.
    pub head: Option<Mapping>,
    /// True if the process runs copies of some of its code, mapped over the file's mappings.
    pub is_remapped: bool,
    /// A mapping of the file, used to open it.
    own: Mapping,
    /// The process, through whose root the file is opened.
    process: Process,
    names: OnceLock<Names>,
}

/// Names of a module besides its file name, determined at first use.
#[derive(Clone, Debug)]
struct Names {
    /// See [`Module::started_as`].
    started_as: Option<String>,
    /// The module's DT_SONAME. `None` if it has none.
    own: Option<String>,
}

impl Module {
    /// The last component of the path.
    pub fn file_name(&self) -> &str {
        file_name(&self.path)
    }

    /// True if one of its names matches: the file name, the DT_SONAME, or for the program the name
    /// that it was started by.
    pub fn is_called(&self, is_it: impl Fn(&str) -> bool) -> bool {
        let names = self.names();
        is_it(self.file_name())
            || names.started_as.as_deref().is_some_and(&is_it)
            || names.own.as_deref().is_some_and(&is_it)
    }

    /// The name of the link by which the program was started. `None` if it was not started by a
    /// link. In Debian, for example, `redis-server` is a link to another file.
    pub fn started_as(&self) -> Option<&str> {
        self.names().started_as.as_deref()
    }

    fn names(&self) -> &Names {
        self.names.get_or_init(|| Names {
            started_as: self.find_started_as(),
            own: self.find_own_name(),
        })
    }

    fn find_started_as(&self) -> Option<String> {
        const FOLDERS: [&str; 6] = [
            "/usr/local/sbin",
            "/usr/local/bin",
            "/usr/sbin",
            "/usr/bin",
            "/sbin",
            "/bin",
        ];
        let exe = self.process.exe()?;
        if exe.as_os_str() != self.path.as_str() {
            return None;
        }
        // Some programs append a status to the first argument.
        let args = self.process.args();
        let first = args.first()?.split_whitespace().next()?;
        let name = Some(file_name(first)).filter(|n| !n.is_empty())?;
        let candidates: Vec<PathBuf> = if first.contains('/') {
            vec![self.process.cwd().unwrap_or_default().join(first)]
        } else {
            FOLDERS.iter().map(|f| Path::new(f).join(name)).collect()
        };
        let root = Root::of(&self.process).ok()?;
        // Both are from stat(2). On some file systems a mapping's device is a different number.
        let same = |a: &Metadata, b: &Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
        let program = self.process.exe_metadata()?;
        let leads_here = |path: &PathBuf| {
            let place = root.place(path).and_then(|place| place.metadata());
            place.is_ok_and(|found| same(&found, &program))
        };
        candidates.iter().any(leads_here).then(|| name.to_owned())
    }

    /// The process that has loaded the module.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// The module's name to show to users: the name that the program was started by, otherwise the
    /// file name.
    pub fn shown_name(&self) -> String {
        let started = self.started_as();
        started.unwrap_or(self.file_name()).to_owned()
    }

    fn find_own_name(&self) -> Option<String> {
        type Known = HashMap<Version, Option<String>>;
        /// The most names to keep. They are all dropped when there are more.
        const MAX_NAMES: usize = 4096;
        /// The DT_SONAME of mapped files. Many processes map the same files.
        static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);
        // Before the file is opened: if it is rewritten in between, the name has an old version.
        let version = self.version()?;
        let bytes = self.open().ok()?;
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_NAMES {
            known.clear();
        }
        let find = || {
            LinkTables::parse(bytes.bytes())
                .ok()?
                .soname()
                .map(str::to_owned)
        };
        known.entry(version).or_insert_with(find).clone()
    }

    /// The device and inode of the mapped file.
    pub fn file(&self) -> FileId {
        self.own.file.clone()
    }

    /// The version of the mapped file, which changes when the file is rewritten. `None` if it
    /// cannot be read; otherwise [`Self::open`] can open the file.
    pub fn version(&self) -> Option<Version> {
        let mapping = &self.own;
        let by_path = || {
            let file = open_regular(&self.in_root(&mapping.path()?)).ok()?;
            let is_it = identity::is_mapped_as(&file, &mapping.file).ok()?;
            is_it.then(|| file.metadata().ok())?
        };
        let found = std::fs::metadata(self.by_mapping(mapping)).ok();
        found.or_else(by_path).map(|meta| Version::of(&meta))
    }

    /// The path of the file through its mapping. It works for deleted and replaced files and in
    /// other mount namespaces, but needs privilege.
    fn by_mapping(&self, mapping: &Mapping) -> PathBuf {
        let Range { start, end } = &mapping.range;
        let pid = self.process.entry();
        PathBuf::from(format!("/proc/{pid}/map_files/{:x}-{:x}", start.0, end.0))
    }

    /// The file's path through the root of the process.
    fn in_root(&self, path: &Path) -> PathBuf {
        let pid = self.process.entry();
        PathBuf::from(format!("/proc/{pid}/root{}", path.display()))
    }

    /// Returns the contents of the mapped file, which is opened once and cached.
    ///
    /// # Errors
    /// The file cannot be opened, or its path leads to another file.
    pub fn open(&self) -> io::Result<FileBytes> {
        let key = (self.path.clone(), self.file());
        opened().get_or_make(key, || self.open_now())
    }

    fn open_now(&self) -> io::Result<FileBytes> {
        let mapping = &self.own;
        let refused = match FileBytes::open(&self.by_mapping(mapping)) {
            Ok(bytes) => return Ok(bytes),
            Err(error) => error,
        };
        let Some(path) = mapping.path() else {
            return Err(refused);
        };
        let in_root = self.in_root(&path);
        let mut cause = None;
        for path in [in_root, path] {
            match identity::open(&path, &mapping.file, |image| self.build_id_agrees(image)) {
                Ok(bytes) => return Ok(bytes),
                // The first cause is about the process's own root. An ended process's root has no
                // files.
                Err(error) => {
                    let first =
                        cause.filter(|first: &io::Error| first.kind() != io::ErrorKind::NotFound);
                    cause = first.or(Some(error));
                }
            }
        }
        Err(cause.unwrap_or(refused))
    }

    /// True if the build id of the file equals the one in the process's memory. `None` if the file
    /// has none or the memory cannot be read.
    fn build_id_agrees(&self, image: &Image<'_>) -> Option<bool> {
        let id = image.build_id()?;
        let offset = id.as_ptr() as u64 - image.data().as_ptr() as u64;
        let holds = |s: &&Segment| {
            let from = offset.checked_sub(s.offset.0);
            from.is_some_and(|from| from + id.len() as u64 <= s.file_size)
        };
        let segment = image.segments().iter().find(holds)?;
        let at = segment.range.start.plus(offset - segment.offset.0);
        let at = self.bias(image)?.to_avma(at);
        let memory = self.process.open_memory().ok()?;
        Some(memory.read_vec(at, id.len()).ok()? == id)
    }

    /// The bias that the loader added to the file's addresses, by the first executable mapping that
    /// matches a segment of the file. `None` if none does.
    pub fn bias(&self, image: &Image<'_>) -> Option<Bias> {
        self.code
            .iter()
            .find_map(|mapping| bias_of(image, mapping.range.start, mapping.offset))
    }

    /// The parts of `candidates` that hold copies of the file's code. `None` if the file or the
    /// memory cannot be read.
    fn copied_code(&self, candidates: &[Mapping], maps: &[Mapping]) -> Option<Vec<Mapping>> {
        let bytes = self.open().ok()?;
        let image = Image::parse(bytes.bytes()).ok()?;
        let is_within = |m: &&Mapping| {
            let Range { start, end } = &m.range;
            m.file == self.own.file && self.range.start <= *start && *end <= self.range.end
        };
        let of_file: Vec<&Mapping> = maps.iter().filter(is_within).collect();
        let mapped = Mapped {
            image: &image,
            bias: bias_of_mappings(&image, &of_file)?,
            own: &self.own,
        };
        let memory = self.process.open_memory().ok()?;
        Some(mapped.copies(candidates, &memory))
    }

    /// True if all bytes of these ranges are mapped executable here, at `bias`. If a file is mapped
    /// in pieces, each piece is a module that contains only its own functions.
    fn maps_code(&self, bias: Bias, ranges: &[Range<Svma>]) -> bool {
        let is_mapped = |range: &Range<Svma>| {
            let (mut at, end) = (bias.to_avma(range.start), bias.to_avma(range.end));
            while at < end {
                let Some(mapping) = self.code.iter().find(|m| m.contains(at)) else {
                    return false;
                };
                at = mapping.range.end;
            }
            at.0 > 0
        };
        ranges.iter().all(is_mapped)
    }

    /// True if the function with all its parts is mapped executable here, at `bias`.
    pub fn maps_function(&self, bias: Bias, function: &patcher::function::Function) -> bool {
        self.maps_code(bias, std::slice::from_ref(&function.range))
            && self.maps_code(bias, &function.cold)
    }

    /// True if any of the function's code is in a shared mapping.
    pub fn shares(&self, bias: Bias, function: &patcher::function::Function) -> bool {
        let of_process = |r: &Range<Svma>| bias.to_avma(r.start)..bias.to_avma(r.end);
        let mut shared = self.code.iter().filter(|m| m.shared);
        let parts: Vec<_> = function.ranges().map(of_process).collect();
        shared.any(|m| {
            let overlaps = |p: &Range<Avma>| p.start < m.range.end && m.range.start < p.end;
            parts.iter().any(overlaps)
        })
    }

    /// The run-time addresses from the module's first to its last byte of code. Empty if it has no
    /// code.
    pub fn code_range(&self) -> Range<Avma> {
        let start = self
            .code
            .iter()
            .map(|m| m.range.start)
            .min()
            .unwrap_or_default();
        let end = self
            .code
            .iter()
            .map(|m| m.range.end)
            .max()
            .unwrap_or_default();
        start..end
    }
}

/// The bias that puts file offset `offset` at `start`, for the executable segment of `image` that
/// contains this offset. `None` if no executable segment contains it.
pub fn bias_of(image: &Image<'_>, start: Avma, offset: FileOffset) -> Option<Bias> {
    let mut executable = image.segments().iter().filter(|s| s.execute);
    executable.find_map(|s| bias_by(s, start, offset))
}

/// The bias that most of these mappings agree on. `None` if no segment of the file fits one of
/// them.
fn bias_of_mappings(image: &Image<'_>, mappings: &[&Mapping]) -> Option<Bias> {
    let biases = |m: &&Mapping| {
        let segments = image.segments().iter();
        let found = segments.filter_map(|s| bias_by(s, m.range.start, m.offset));
        found.collect::<Vec<Bias>>()
    };
    let all: Vec<Vec<Bias>> = mappings.iter().map(biases).collect();
    let votes = |bias: &&Bias| all.iter().filter(|one| one.contains(bias)).count();
    all.iter().flatten().max_by_key(votes).copied()
}

/// The bias that puts file offset `offset` of the segment at `start`. `None` if the segment does
/// not contain the offset.
pub(super) fn bias_by(segment: &Segment, start: Avma, offset: FileOffset) -> Option<Bias> {
    // The kernel maps whole pages. File offset and address agree modulo the page size.
    let first = segment.offset.0 & !(abi::PAGE - 1);
    let end = segment.offset.0.saturating_add(segment.file_size);
    if !(first..end).contains(&offset.0) {
        return None;
    }
    let distance = offset.0.wrapping_sub(segment.offset.0);
    Some(Bias::between(segment.range.start.plus(distance), start))
}

/// The modules of a process with executable mappings, ordered by address. A file that is mapped
/// twice (dlmopen) gives two modules, as does a file with a second mapping of a part.
pub fn modules(process: &Process, maps: &[Mapping]) -> Vec<Module> {
    let groups = grouped(maps);
    let mut modules: Vec<Module> = Vec::new();
    for group in groups {
        let Some(module) = module(process, &group) else {
            continue;
        };
        let module = with_copied_code(module, maps);
        match module.code.len() {
            0 => {}
            1 => modules.push(module),
            _ => match module.open() {
                Ok(bytes) => modules.extend(split(module, &group, &bytes)),
                Err(_) => modules.push(module),
            },
        }
    }
    modules
}

/// Extends the module by copies of its code in anonymous memory. Leaves it unchanged if there are
/// none, or if that memory holds something else.
fn with_copied_code(mut module: Module, maps: &[Mapping]) -> Module {
    let candidates = remapped::candidates(&module.range, maps);
    if candidates.is_empty() || module.path == VDSO {
        return module;
    }
    let pieces = module.copied_code(&candidates, maps);
    for piece in pieces.unwrap_or_default() {
        let Range { start, end } = piece.range;
        module.is_remapped = true;
        module.range = module.range.start.min(start)..module.range.end.max(end);
        if piece.offset.0 == 0 {
            module.head.get_or_insert_with(|| piece.clone());
        }
        module.code.push(piece);
    }
    module.code.sort_by_key(|m| m.range.start);
    module
}

/// Groups consecutive mappings of the same file. Anonymous mappings are skipped.
fn grouped(maps: &[Mapping]) -> Vec<Vec<&Mapping>> {
    let mut groups: Vec<Vec<&Mapping>> = Vec::new();
    let mut is_open = false;
    // .bss and anonymous gaps lie between a file's mappings.
    for mapping in maps
        .iter()
        .filter(|m| !m.name.is_empty() && !remapped::is_named(m))
    {
        let is_vdso = mapping.name == VDSO;
        if mapping.path().is_none() && !is_vdso {
            is_open = false;
            continue;
        }
        match groups.last_mut() {
            Some(group) if is_open && !is_vdso && continues(group, mapping) => group.push(mapping),
            _ => groups.push(vec![mapping]),
        }
        is_open = true;
    }
    groups
}

/// True if a mapping belongs to the module of the group before it.
fn continues(group: &[&Mapping], mapping: &Mapping) -> bool {
    let starts_anew = mapping.offset.0 == 0 && group.iter().any(|m| m.execute);
    group[0].file == mapping.file && !starts_anew
}

/// The module with these mappings of one file. `None` without mappings.
fn module(process: &Process, mappings: &[&Mapping]) -> Option<Module> {
    let (first, last) = (mappings.first()?, mappings.last()?);
    let code = mappings.iter().filter(|m| m.execute);
    let head = mappings.iter().find(|m| m.offset.0 == 0 && m.read);
    let path = first.name.strip_suffix(" (deleted)").unwrap_or(&first.name);
    Some(Module {
        path: path.to_owned(),
        range: first.range.start..last.range.end,
        code: code.map(|&m| m.clone()).collect(),
        head: head.map(|&m| m.clone()),
        is_remapped: false,
        own: mappings
            .iter()
            .find(|m| m.execute)
            .unwrap_or(first)
            .to_owned()
            .clone(),
        process: process.clone(),
        names: OnceLock::new(),
    })
}

/// Splits the module by the biases of its executable mappings.
fn split(module: Module, mappings: &[&Mapping], bytes: &FileBytes) -> Vec<Module> {
    let Ok(image) = Image::parse(bytes.bytes()) else {
        return vec![module];
    };
    let bias = |m: &Mapping| bias_of(&image, m.range.start, m.offset);
    let mut biases: Vec<Bias> = Vec::new();
    for bias in module.code.iter().filter_map(bias) {
        if !biases.contains(&bias) {
            biases.push(bias);
        }
    }
    if biases.len() < 2 {
        return vec![module];
    }
    let of_bias = |wanted: &Bias| {
        let is_at = |m: &&&Mapping| {
            let mut segments = image.segments().iter();
            segments.any(|s| bias_by(s, m.range.start, m.offset) == Some(*wanted))
        };
        let own: Vec<&Mapping> = mappings.iter().filter(is_at).copied().collect();
        self::module(&module.process, &own)
    };
    biases.iter().filter_map(of_bias).collect()
}
