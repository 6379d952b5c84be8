//! The files of modules. A file is opened once for all of its users.
//!
//! All sessions of a command share these caches, because the processes of a job run the same files.
//! The caches are bounded (see [`Cache`]), because a command may run for months (`push --every`,
//! `serve-metrics`).

mod parsed;
#[cfg(test)]
mod tests;

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::io;
use std::ops::Deref;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};

use patcher::elf::LinkTables;
use patcher::flow::{ModuleContext, Recipe, frames, unnamed_functions};
use patcher::function::Function;
use patcher::image::{Image, ImageError};
use patcher::select::Pattern;
use patcher::{Avma, Bias, Svma};

use crate::debuginfod;
use crate::elf_symbols;
use crate::lines::{self, FileLines, Places};
use ipath_base::cache::Cache;
use ipath_base::files::{FileBytes, Stamp, Version};
use ipath_target::process::identity::FileId;
use ipath_target::process::modules::{self, MAX_UNUSED, Module, VDSO};
use ipath_target::process::{Memory, Process};
use ipath_target::progress::Step;
use parsed::Parsed;

/// The most replaced files to keep open while they are not in use.
const MAX_UNUSED_FORMER: usize = 64;

/// An open file and the facts derived from it.
pub struct OpenImage {
    id: ImageId,
    parsed: Parsed,
    path: PathBuf,
    /// See [`OpenImage::frames`].
    frames: OnceLock<Vec<(Svma, Recipe)>>,
    /// Functions that are found by their code alone.
    unnamed: OnceLock<Vec<Function>>,
    /// Facts that other modules derived, by type.
    derived: Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>,
    /// True if non-exported functions have names, from the file itself or from its debug file.
    has_symbols: bool,
    /// The image with the symbols of a debug file that arrived later. `None` before.
    renewed: Mutex<Option<Arc<OpenImage>>>,
    /// Its build, see [`build_of`].
    build: Option<u64>,
    /// The version of the module's file before it was opened. `None` if it is not known.
    version: Option<Version>,
}

/// Identifies an [`OpenImage`]. Numbers are not reused after an image is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImageId(u64);

/// The build of a file, which the runtime computes as well ([`abi::segment::build_of`]). `None` if
/// the file is too short.
pub fn build_of(data: &[u8]) -> Option<u64> {
    data.first_chunk().map(abi::segment::build_of)
}

/// The [context](OpenImage::context) of an image, computed when it is first dereferenced.
struct LazyContext<'i>(&'i OpenImage);

impl<'i> Deref for LazyContext<'i> {
    type Target = ModuleContext<'i>;

    fn deref(&self) -> &ModuleContext<'i> {
        self.0.context()
    }
}

impl OpenImage {
    fn of(parsed: Parsed, path: &Path, has_symbols: bool, version: Option<Version>) -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let build = build_of(parsed.file().bytes());
        Arc::new(Self {
            id: ImageId(NEXT.fetch_add(1, Relaxed)),
            parsed,
            path: path.to_owned(),
            frames: OnceLock::new(),
            unnamed: OnceLock::new(),
            derived: Mutex::default(),
            has_symbols,
            renewed: Mutex::default(),
            build,
            version,
        })
    }

    /// Its number.
    pub fn id(&self) -> ImageId {
        self.id
    }

    /// The parsed file.
    pub fn image(&self) -> &Image<'_> {
        self.parsed.tables().image()
    }

    /// The facts about the whole module that planning needs. They are computed at the first use,
    /// which reads all of the code.
    pub fn context(&self) -> &ModuleContext<'_> {
        let begin = || Step::begin(format!("reading the code of {}", self.path.display()));
        self.parsed.tables().context(begin)
    }

    /// The contents of the file.
    pub fn bytes(&self) -> &FileBytes {
        self.parsed.file()
    }

    /// True if the file has this build. False if its build is unknown.
    pub fn is_build(&self, build: u64) -> bool {
        self.build == Some(build)
    }

    /// True if the build of the mapped bytes ([`build_of`], by the start of the file) is unchanged
    /// since the file was opened. A file may be overwritten in place.
    pub fn is_intact(&self) -> bool {
        build_of(self.image().data()) == self.build
    }

    /// The stamp of the file when it was opened. Another stamp means that the file was rewritten.
    pub fn stamp(&self) -> Stamp {
        self.bytes().stamp()
    }

    /// True if the module's file may have been rewritten since it was opened.
    fn may_be_outdated(&self, module: &Module) -> bool {
        let now = module.version();
        !self.is_intact() || now.is_some_and(|now| self.version != Some(now))
    }

    /// True if some functions may have names that are unknown here.
    pub fn lacks_symbols(&self) -> bool {
        !self.has_symbols
    }

    /// Requests the debug file from a server, in the background, if the file has a build id. `path`
    /// is the path of the file.
    pub fn want_debug_file(&self, path: &Path) {
        if let Some(id) = self.image().build_id() {
            debuginfod::want(id, path, lines::is_debug_file_of);
        }
    }

    /// The source positions of the file, from the file itself or from its debug file. `path` is the
    /// path of the file. `None` if it has none.
    pub fn lines(&self, path: &Path) -> Option<FileLines> {
        FileLines::load(self.bytes().clone(), &Places::for_file(path))
    }

    /// Recipes for the frames of calls that no loaded unwind entry describes correctly, by return
    /// address, ascending. The first call may read all of the code.
    pub fn frames(&self) -> &[(Svma, Recipe)] {
        const DEBUG_FRAME: &str = ".debug_frame";
        self.frames.get_or_init(|| {
            let described = lines::section(self.image().data(), DEBUG_FRAME);
            let found = frames(self.image(), &LazyContext(self), described.as_deref());
            found.into_iter().collect()
        })
    }

    /// The result of `find` on the file, which is kept: one value per type.
    pub fn derived<T: Any + Send + Sync>(&self, find: impl FnOnce(&Image<'_>) -> T) -> Arc<T> {
        let mut derived = self.derived.lock().unwrap_or_else(PoisonError::into_inner);
        let known = derived
            .entry(TypeId::of::<T>())
            .or_insert_with(|| Arc::new(find(self.image())));
        let known = Arc::clone(known).downcast();
        known.unwrap_or_else(|_| unreachable!("its key is its type"))
    }

    /// The functions that a pattern names in the file. `module` is the name of the file, and `bias`
    /// applies to addresses in a process.
    pub fn select(&self, pattern: &Pattern, module: &str, bias: Bias) -> Vec<Function> {
        let at = pattern.absolute_address().map(|at| bias.to_svma(at));
        let Some(at) = at.or(pattern.address_in_file()) else {
            return pattern.select(self.image(), module);
        };
        let known = Pattern::select_at(self.image(), at);
        let found = known.or_else(|| self.unnamed_at(at));
        found.into_iter().collect()
    }

    /// The function at an address, by symbols, tables or the code itself. `None` if none of them
    /// has a function there.
    pub fn function_at(&self, at: Svma) -> Option<Function> {
        let known = self.image().functions().function_at(at);
        known.or_else(|| self.unnamed_at(at))
    }

    /// As [`Self::function_at`], only by the code itself. `None` for code with an unwind entry.
    fn unnamed_at(&self, at: Svma) -> Option<Function> {
        if !self.image().is_code(at) || self.image().fde(at).is_some() {
            return None;
        }
        let find = || unnamed_functions(self.image(), self.context());
        let all = self.unnamed.get_or_init(find);
        let after = all.partition_point(|function| function.range.start <= at);
        let before = all.get(after.checked_sub(1)?)?;
        before.range.contains(&at).then(|| before.clone())
    }
}

/// The reason why a module's file cannot be used.
#[derive(Debug)]
pub enum OpenError {
    /// The file cannot be opened.
    Io(io::Error),
    /// The file is not a supported ELF image.
    Image(ImageError),
}

impl std::fmt::Display for OpenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io(error) => ipath_base::error::io_text(error).fmt(f),
            Self::Image(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for OpenError {}

/// Parses a file with this path, with the symbols of its separate debug file.
///
/// # Errors
/// The file is not a supported ELF image.
pub fn open(file: &FileBytes, path: &Path) -> Result<Arc<OpenImage>, OpenError> {
    open_version(file, path, None)
}

/// As [`open`], with the version of the file if it is known.
fn open_version(
    file: &FileBytes,
    path: &Path,
    version: Option<Version>,
) -> Result<Arc<OpenImage>, OpenError> {
    let _step = Step::begin(format!("reading {}", path.display()));
    let find_symbols = |data: &[u8]| lines::symbol_file(data, &Places::for_file(path));
    let parsed = Parsed::new(file.clone(), find_symbols).map_err(OpenError::Image)?;
    let has_symbols = parsed.has_symbol_file() || lines::section(file.bytes(), ".symtab").is_some();
    Ok(OpenImage::of(parsed, path, has_symbols, version))
}

/// The image with the symbols of its debug file, if one has arrived since it was opened. The new
/// image then replaces the old one for later users. Otherwise returns the same image. `path` is the
/// path of the file.
pub fn renewed(image: &Arc<OpenImage>, path: &Path) -> Arc<OpenImage> {
    if !image.lacks_symbols() {
        return Arc::clone(image);
    }
    let again = || {
        let file = image.bytes().clone();
        let symbols = lines::symbol_file(file.bytes(), &Places::for_file(path))?;
        let parsed = Parsed::new(file, |_| Some(symbols)).ok()?;
        Some(OpenImage::of(parsed, path, true, image.version))
    };
    let mut renewed = image.renewed.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(new) = renewed.clone().or_else(again) else {
        return Arc::clone(image);
    };
    *renewed = Some(Arc::clone(&new));
    let mut opened = opened();
    let same = opened
        .values_mut()
        .filter(|known| Arc::ptr_eq(known, image));
    same.for_each(|known| *known = Arc::clone(&new));
    new
}

/// Path, device and inode. Another file may get the same key once the first one is unmapped
/// everywhere (see [`forget_changed`]).
type FileKey = (String, String, u64);

/// The open files of modules.
fn opened() -> MutexGuard<'static, Images<FileKey>> {
    static OPENED: LazyLock<Mutex<Images<FileKey>>> =
        LazyLock::new(|| Mutex::new(Cache::new(MAX_UNUSED)));
    OPENED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file that no running process maps, by path, device and inode. `bytes` opens it if it is not
/// open yet.
///
/// # Errors
/// Those of `bytes`, or the file is not a supported ELF image.
pub fn of_file(
    path: &str,
    file: &FileId,
    bytes: impl FnOnce() -> Result<FileBytes, OpenError>,
) -> Result<Arc<OpenImage>, OpenError> {
    let key = (path.to_owned(), file.0.clone(), file.1);
    opened().get_or_make(key, || open(&bytes()?, path.as_ref()))
}

/// The code that the kernel maps into every process, read from this process.
///
/// # Errors
/// The memory cannot be read, or it is not a supported ELF image.
pub fn vdso() -> Result<Arc<OpenImage>, OpenError> {
    /// The vDSO does not change while the system runs.
    static KNOWN: OnceLock<Arc<OpenImage>> = OnceLock::new();
    if let Some(known) = KNOWN.get() {
        return Ok(Arc::clone(known));
    }
    let read = || {
        let maps = std::fs::read_to_string("/proc/self/maps")?;
        let maps = ipath_target::process::maps::parse(&maps);
        let none = || io::Error::other("none");
        let mapping = maps.iter().find(|m| m.name == VDSO).ok_or_else(none)?;
        let mut bytes = vec![0; (mapping.range.end.0 - mapping.range.start.0) as usize];
        let memory = std::fs::File::open("/proc/self/mem")?;
        memory.read_exact_at(&mut bytes, mapping.range.start.0)?;
        Ok(bytes)
    };
    let bytes = FileBytes::of_bytes(read().map_err(OpenError::Io)?);
    let parsed = Parsed::new(bytes, |_| None).map_err(OpenError::Image)?;
    // The kernel exports all of its functions.
    let image = OpenImage::of(parsed, VDSO.as_ref(), true, None);
    Ok(Arc::clone(KNOWN.get_or_init(|| image)))
}

fn key(module: &Module) -> FileKey {
    let file = module.file();
    (module.path.clone(), file.0, file.1)
}

/// Forgets the files of these modules that were rewritten since they were opened. A rebuilt library
/// often has the name and the inode of the previous one, and may have its size and its modification
/// time.
pub fn forget_changed(modules: &[Module]) {
    for module in modules {
        let image = opened().get(&key(module));
        if image.is_some_and(|image| image.may_be_outdated(module)) {
            forget(&module.path, &module.file());
        }
    }
}

/// Forgets a file, so that it is opened again at the next use. The old image is then found by
/// [`former`].
pub fn forget(path: &str, file: &FileId) {
    modules::forget(path, file);
    let key = (path.to_owned(), file.0.clone(), file.1);
    let image = opened().remove(&key);
    if let Some(image) = image {
        former_images().insert((key.0, image.id), image);
    }
}

/// Images by key.
type Images<K> = Cache<K, Arc<OpenImage>>;

/// Images of replaced files, by path.
fn former_images() -> MutexGuard<'static, Images<(String, ImageId)>> {
    static FORMER: LazyLock<Mutex<Images<(String, ImageId)>>> =
        LazyLock::new(|| Mutex::new(Cache::new(MAX_UNUSED_FORMER)));
    FORMER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The image of a replaced file at this path that has the build seen by the runtime. If there are
/// several, the one opened first. `None` if there is none, or if it was overwritten since.
pub fn former(path: &str, build: u64) -> Option<Arc<OpenImage>> {
    let mut former = former_images();
    let is_it = |image: &OpenImage| image.is_build(build) && image.is_intact();
    let of_path = former.iter().filter(|((of, _), _)| of == path);
    let of_build = of_path.filter(|(_, image)| is_it(image));
    let first = of_build.map(|(key, _)| key).min_by_key(|(_, id)| *id)?;
    let first = first.clone();
    former.get(&first)
}

/// The file of a loaded module.
///
/// # Errors
/// The file cannot be opened, or it is not a supported ELF image.
pub fn of_module(module: &Module) -> Result<Arc<OpenImage>, OpenError> {
    opened().get_or_make(key(module), || match module.path.as_str() {
        VDSO => vdso(),
        path => {
            // Before the file is opened: if it is rewritten in between, it is opened again.
            let version = module.version();
            let file = module.open().map_err(OpenError::Io)?;
            open_version(&file, path.as_ref(), version)
        }
    })
}

/// The loader of a process with these modules. It is the program itself if that was started as
/// `ld.so PROGRAM`. `None` if there is no loader.
pub fn loader<'m>(process: &Process, modules: &'m [Module]) -> Option<&'m Module> {
    const AT_ENTRY: u64 = 9;
    if let Some(base) = process.loader() {
        return modules.iter().find(|m| m.range.start == base);
    }
    let entry = process.auxiliary(AT_ENTRY).map(Avma)?;
    let program = modules.iter().find(|m| m.range.contains(&entry))?;
    let image = of_module(program).ok()?;
    is_loader(image.image()).then_some(program)
}

/// True if a file without an interpreter loads other files. A static program contains the functions
/// of a loader as well, but exports them only together with its own functions.
fn is_loader(image: &Image<'_>) -> bool {
    let Ok(tables) = LinkTables::parse(image.data()) else {
        return false;
    };
    let exports = |name: &str| tables.exported(name).is_some();
    !tables.has_interpreter() && exports("_dl_debug_state") && !exports("main")
}

/// The addresses of the symbols `names` in the loader of a process with these modules, each `None`
/// if the loader does not define it. `None` altogether if there is no loader, or if its file cannot
/// be read.
pub fn in_loader<const N: usize>(
    process: &Process,
    modules: &[Module],
    names: [&str; N],
) -> Option<[Option<Avma>; N]> {
    let module = loader(process, modules)?;
    let image = of_module(module).ok()?;
    let bias = module.bias(image.image())?;
    let found = elf_symbols::defined(image.image().data(), names);
    Some(found.map(|at| at.map(|at| bias.to_avma(at))))
}

/// The address of the state of the loader's list of libraries: `r_state` of link.h. It is 0
/// (RT_CONSISTENT) while the list is consistent. `None` if there is no loader, if it exports
/// neither list nor pointer to it, or if it is not yet relocated.
pub fn loader_state(process: &Process, memory: &Memory, modules: &[Module]) -> Option<Avma> {
    /// Offset of `r_state` in `struct r_debug`.
    const R_STATE: u64 = 24;
    // A symbol of glibc, and a pointer to it in musl.
    let found = in_loader(process, modules, ["_r_debug", "_dl_debug_addr"])?;
    let debug = match found {
        [Some(debug), _] => debug,
        [None, Some(pointer)] => Avma(memory.read_word(pointer).ok()?),
        _ => return None,
    };
    // Before the loader has relocated itself, the pointer has another value.
    let is_there = |at: &Avma| loader(process, modules).is_some_and(|m| m.range.contains(at));
    Some(Avma(debug.0.wrapping_add(R_STATE))).filter(is_there)
}
