//! The files of modules, opened once and kept for the life of the command.

#[cfg(test)]
mod tests;

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};

use patcher::elf::LinkTables;
use patcher::flow::{Recipe, frames, unnamed_functions};
use patcher::function::Function;
use patcher::image::{Image, ImageError};
use patcher::plan::ModuleContext;
use patcher::select::Pattern;
use patcher::{Avma, Bias, Svma};

use crate::debuginfod;
use crate::elf_symbols;
use crate::lines::{self, Places};
use ipath_base::files::{FileBytes, Stamp};
use ipath_target::process::identity::FileId;
use ipath_target::process::modules::{self, Module, VDSO};
use ipath_target::process::{Memory, Process};
use ipath_target::progress::Step;

/// An opened file and what has been found out about it.
pub struct OpenImage {
    /// The file's structure.
    pub image: &'static Image<'static>,
    /// What planning needs to know of the module as a whole, found out at first use: it reads all of the code.
    pub context: LazyContext,
    /// How the frames of calls are left that no loaded unwind entry covers, once they have been asked for.
    frames: OnceLock<Vec<(Svma, Recipe)>>,
    /// The functions that nothing in the file tells, once one has been asked for.
    unnamed: OnceLock<Vec<Function>>,
    /// What others have found out about it, by type.
    derived: Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>,
    /// True if functions that are not exported have names, by its own symbols or those of its debug file.
    has_symbols: bool,
    /// What tells that the file has been written anew since.
    stamp: Stamp,
    /// What tells its build: see [`build_of`].
    build: Option<u64>,
}

/// What the runtime has of a file as well ([`abi::segment::build_of`]); `None` of one that is too short.
pub fn build_of(data: &[u8]) -> Option<u64> {
    data.first_chunk().map(abi::segment::build_of)
}

/// See [`OpenImage::context`].
type LazyContext =
    LazyLock<ModuleContext<'static>, Box<dyn FnOnce() -> ModuleContext<'static> + Send>>;

impl OpenImage {
    fn of(image: Image<'static>, path: &Path, has_symbols: bool, stamp: Stamp) -> &'static Self {
        let image: &'static Image<'static> = Box::leak(Box::new(image));
        let step = format!("reading the code of {}", path.display());
        let read = || {
            let _step = Step::begin(step);
            ModuleContext::new(image)
        };
        let context = LazyLock::new(Box::new(read) as Box<_>);
        Box::leak(Box::new(Self {
            image,
            context,
            frames: OnceLock::new(),
            unnamed: OnceLock::new(),
            derived: Mutex::default(),
            has_symbols,
            stamp,
            build: build_of(image.data()),
        }))
    }

    /// True if the file is this build.
    pub fn is_build(&self, build: u64) -> bool {
        self.build == Some(build)
    }

    /// True if its bytes are what they were when it was opened: a file may be written over where it is.
    pub fn is_intact(&self) -> bool {
        build_of(self.image.data()) == self.build
    }

    /// What tells that the file has been written anew since it was opened.
    pub fn stamp(&self) -> Stamp {
        self.stamp
    }

    /// True if functions may have names that are not known.
    pub fn lacks_symbols(&self) -> bool {
        !self.has_symbols
    }

    /// Has its debug file fetched meanwhile, where it tells its build id. Its path is this.
    pub fn want_debug_file(&self, path: &Path) {
        if let Some(id) = self.image.build_id() {
            debuginfod::want(id, path, lines::is_debug_file_of);
        }
    }

    /// How the frames of calls that no loaded unwind entry covers are left, by return address, ascending.
    pub fn frames(&self) -> &[(Svma, Recipe)] {
        const DEBUG_FRAME: &str = ".debug_frame";
        self.frames.get_or_init(|| {
            let described = lines::section(self.image.data(), DEBUG_FRAME);
            let found = frames(self.image, &self.context, described.as_deref());
            found.into_iter().collect()
        })
    }

    /// What `find` finds in the file, kept with it: one value of each type.
    pub fn derived<T: Any + Send + Sync>(&self, find: impl FnOnce(&Image<'_>) -> T) -> Arc<T> {
        let mut derived = self.derived.lock().unwrap_or_else(PoisonError::into_inner);
        let known = derived
            .entry(TypeId::of::<T>())
            .or_insert_with(|| Arc::new(find(self.image)));
        let known = Arc::clone(known).downcast();
        known.unwrap_or_else(|_| unreachable!("its key is its type"))
    }

    /// The functions that a pattern names in the file, whose name is `module`. An address in a process is one at
    /// this bias.
    pub fn select(&self, pattern: &Pattern, module: &str, bias: Bias) -> Vec<Function> {
        let at = pattern.absolute_address().map(|at| bias.to_svma(at));
        let Some(at) = at.or(pattern.address_in_file()) else {
            return pattern.select(self.image, module);
        };
        let known = Pattern::select_at(self.image, at);
        let found = known.or_else(|| self.unnamed_at(at));
        found.into_iter().collect()
    }

    /// The function that an address is in, as far as the file or its code tells.
    pub fn function_at(&self, at: Svma) -> Option<Function> {
        let known = self.image.functions().function_at(at);
        known.or_else(|| self.unnamed_at(at))
    }

    /// The same of an address in none that the file tells.
    fn unnamed_at(&self, at: Svma) -> Option<Function> {
        if !self.image.is_code(at) || self.image.fde(at).is_some() {
            return None;
        }
        let find = || unnamed_functions(self.image, &self.context);
        let all = self.unnamed.get_or_init(find);
        let after = all.partition_point(|function| function.range.start <= at);
        let before = all.get(after.checked_sub(1)?)?;
        before.range.contains(&at).then(|| before.clone())
    }
}

/// Why a module's file cannot be used.
#[derive(Debug)]
pub enum OpenError {
    /// It cannot be opened.
    Io(io::Error),
    /// It is no image.
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

/// Reads a file, which has this path, as an image, with the symbols of its separate debug file. Its bytes stay
/// mapped: a command opens each file once and ends soon.
pub fn open(bytes: &FileBytes, path: &Path) -> Result<&'static OpenImage, OpenError> {
    let _step = Step::begin(format!("reading {}", path.display()));
    let data = kept(bytes.clone());
    let mut image = Image::parse(data).map_err(OpenError::Image)?;
    let symbols = lines::symbol_file(data, &Places::for_file(path));
    let has_symbols = symbols.is_some() || lines::section(data, ".symtab").is_some();
    if let Some(symbols) = symbols {
        image = image.with_symbols_of(kept(symbols));
    }
    Ok(OpenImage::of(image, path, has_symbols, bytes.stamp()))
}

fn kept(bytes: FileBytes) -> &'static [u8] {
    Box::leak(Box::new(bytes)).bytes()
}

/// The file at `path`, which has been opened as `image`, with the symbols of its debug file if one has come since.
pub fn renewed(image: &'static OpenImage, path: &Path) -> &'static OpenImage {
    /// By where their bytes are.
    static RENEWED: LazyLock<Mutex<HashMap<usize, &'static OpenImage>>> =
        LazyLock::new(Mutex::default);
    if !image.lacks_symbols() {
        return image;
    }
    let data: &'static [u8] = image.image.data();
    let mut renewed = RENEWED.lock().unwrap_or_else(PoisonError::into_inner);
    let again = || {
        let symbols = lines::symbol_file(data, &Places::for_file(path))?;
        let new = Image::parse(data).ok()?.with_symbols_of(kept(symbols));
        Some(OpenImage::of(new, path, true, image.stamp))
    };
    let at = data.as_ptr() as usize;
    let Some(new) = renewed.get(&at).copied().or_else(again) else {
        return image;
    };
    renewed.insert(at, new);
    let mut modules = MODULES.lock().unwrap_or_else(PoisonError::into_inner);
    let same = modules
        .values_mut()
        .filter(|known| std::ptr::eq(**known, image));
    same.for_each(|known| *known = new);
    new
}

/// Path, device and inode: another file may have the same ones once nobody has the first one mapped (see [`forget_changed`]).
type FileKey = (String, String, u64);

static MODULES: LazyLock<Mutex<HashMap<FileKey, &'static OpenImage>>> =
    LazyLock::new(Mutex::default);

/// A file that is not mapped by a process that lives, by path, device and inode: opened once, by its `bytes`, where no module is known
/// to be it.
pub fn of_file(
    path: &str,
    file: &FileId,
    bytes: impl FnOnce() -> Result<FileBytes, OpenError>,
) -> Result<&'static OpenImage, OpenError> {
    let key = (path.to_owned(), file.0.clone(), file.1);
    let mut known = MODULES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(image) = known.get(&key) {
        return Ok(image);
    }
    let image = open(&bytes()?, path.as_ref())?;
    known.insert(key, image);
    Ok(image)
}

/// The code that the kernel maps into every process, as this one has it.
pub fn vdso() -> Result<&'static OpenImage, OpenError> {
    static KNOWN: OnceLock<&'static OpenImage> = OnceLock::new();
    if let Some(known) = KNOWN.get() {
        return Ok(known);
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
    let bytes: &'static [u8] = Vec::leak(read().map_err(OpenError::Io)?);
    let image = Image::parse(bytes).map_err(OpenError::Image)?;
    // The kernel exports all of its functions.
    let image = OpenImage::of(image, VDSO.as_ref(), true, Stamp::default());
    Ok(KNOWN.get_or_init(|| image))
}

fn key(module: &Module) -> FileKey {
    let file = module.file();
    (module.path.clone(), file.0, file.1)
}

/// Forgets those of these modules' files that have been written anew since they were opened: a library that is built again and loaded
/// again often has the name and the inode of the one before.
pub fn forget_changed(modules: &[Module]) {
    for module in modules {
        let known = MODULES.lock().unwrap_or_else(PoisonError::into_inner);
        let image = known.get(&key(module)).copied();
        drop(known);
        let changed = |image: &OpenImage| module.stamp().is_some_and(|now| now != image.stamp);
        if image.is_some_and(changed) {
            forget(&module.path, &module.file());
        }
    }
}

/// Has this file opened anew, the next time; what it has been is [`former`] from then on.
pub fn forget(path: &str, file: &FileId) {
    modules::forget(path, file);
    let key = (path.to_owned(), file.0.clone(), file.1);
    let mut known = MODULES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(image) = known.remove(&key) {
        let mut former = FORMER.lock().unwrap_or_else(PoisonError::into_inner);
        former.push((key.0, image));
    }
}

/// Files that were mapped before others that have their names and inodes.
static FORMER: Mutex<Vec<(String, &'static OpenImage)>> = Mutex::new(Vec::new());

/// The build of the file at this path that the runtime has seen, where it has been opened before the one that is there now.
pub fn former(path: &str, build: u64) -> Option<&'static OpenImage> {
    let former = FORMER.lock().unwrap_or_else(PoisonError::into_inner);
    let mut of_path = former.iter().filter(|(of, _)| of == path);
    let (_, image) = of_path.find(|(_, image)| image.is_build(build) && image.is_intact())?;
    Some(image)
}

/// The file of a loaded module.
pub fn of_module(module: &Module) -> Result<&'static OpenImage, OpenError> {
    let key = key(module);
    let mut known = MODULES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(image) = known.get(&key) {
        return Ok(image);
    }
    let image = match module.path.as_str() {
        VDSO => vdso()?,
        path => open(&module.open().map_err(OpenError::Io)?, path.as_ref())?,
    };
    known.insert(key, image);
    Ok(image)
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
    is_loader(image.image).then_some(program)
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

/// Addresses in the loader of a process with these modules, by the names under which it exports them; none where there is no loader.
pub fn in_loader<const N: usize>(
    process: &Process,
    modules: &[Module],
    names: [&str; N],
) -> Option<[Option<Avma>; N]> {
    let module = loader(process, modules)?;
    let image = of_module(module).ok()?;
    let bias = module.bias(image.image)?;
    let found = elf_symbols::defined(image.image.data(), names);
    Some(found.map(|at| at.map(|at| bias.to_avma(at))))
}

/// Where the loader keeps what becomes of its list of libraries: `r_state` of link.h, 0 (RT_CONSISTENT) where that is whole.
pub fn loader_state(process: &Process, memory: &Memory, modules: &[Module]) -> Option<Avma> {
    /// Offset of `r_state` in `struct r_debug`.
    const R_STATE: u64 = 24;
    // glibc's, and a pointer of musl's to it.
    let found = in_loader(process, modules, ["_r_debug", "_dl_debug_addr"])?;
    let debug = match found {
        [Some(debug), _] => debug,
        [None, Some(pointer)] => Avma(memory.read_word(pointer).ok()?),
        _ => return None,
    };
    // One that has not relocated itself yet has something else in that pointer.
    let is_there = |at: &Avma| loader(process, modules).is_some_and(|m| m.range.contains(at));
    Some(Avma(debug.0.wrapping_add(R_STATE))).filter(is_there)
}
