//! The code of a process: the function at an address, and stack walks from there.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use framehop::{FrameAddress, Unwinder as _};
use patcher::flow::{Recipe, frames_around};
use patcher::function::demangle;
use patcher::select::name_of_start;
use patcher::{Avma, Bias, Svma};

use super::own;
use super::role::{Role, role_of};
use super::unwinding::{before, left, unwound, unwound_in_memory};
use crate::arch::{Cache, Registers, Unwinder};
use ipath_base::files::FilePart;
use ipath_profile::folding::Fold;
use ipath_profile::services::is_service;
use ipath_symbols::debuginfod;
use ipath_symbols::images::{self, OpenImage};
use ipath_symbols::jit::JitNames;
use ipath_target::process::modules::{Module, modules};
use ipath_target::process::unread::UnwindTables;
use ipath_target::process::{Extent, Mapping, Process};

/// The identity of a function: its module, its first address, and its name if it is generated code.
type FunctionKey = (Option<usize>, Avma, Option<Arc<str>>);

/// The number of a function that was seen: its index in [`Code`]'s list of functions.
pub(super) type FunctionId = u32;

/// A function that has been seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// Index of its module, as in [`Code::modules`]. `None` for code that is in no file.
    pub(super) module: Option<usize>,
    /// First address in the process.
    pub(super) start: Avma,
    /// Its first address in its file, or in the process if it is in no file or the file's bias is
    /// unknown.
    pub(super) address: Svma,
    /// Its linkage name. Empty if it has none.
    pub(super) linkage: String,
    /// Its demangled name, or its position in its module if it has no name.
    pub(super) name: String,
    /// See [`is_service`].
    pub(super) serves: bool,
    /// Its role in waits.
    pub(super) role: Role,
    /// True if it belongs to a language runtime and is the entry of a program or thread.
    pub(super) is_of_runtime: bool,
    /// True if ipath mapped it.
    pub(super) is_own: bool,
    /// False for code of a file in which no function is known.
    pub(super) is_known: bool,
    /// True for a part of a compiler's runtime that generated code calls all the time.
    pub(super) is_built_in: bool,
}

/// A module and the known facts about it.
struct Loaded {
    module: Module,
    /// The name of the module for users.
    shown: String,
    /// `None` if the file cannot be read or its bias is unknown.
    image: Option<(Arc<OpenImage>, Bias)>,
    /// Replaces `image` if there is none. `None` if the memory of the process does not help either.
    unread: Option<Unread>,
    /// True if all of its code is searched for the frames of calls. This takes seconds for large
    /// files. It is done only for small files and files without tables, before sampling begins.
    is_looked_through: bool,
    /// Recipes for frames that nothing else describes, by the return address of a call. `None` for
    /// an address without a recipe. Filled on demand.
    after: HashMap<Svma, Option<Recipe>>,
    /// As `after`, for innermost frames, by the address of the instruction that runs next.
    before: HashMap<Svma, Option<Recipe>>,
}

/// A module whose file cannot be read.
struct Unread {
    bias: Bias,
    tables: Option<UnwindTables>,
}

/// The mapped code of a process.
pub(super) struct Code {
    process: Process,
    /// All modules seen so far.
    loaded: Vec<Loaded>,
    /// The indexes in `loaded` of the modules that are mapped now.
    current: Vec<usize>,
    /// Executable mappings in ascending order of their addresses, each with the index of its
    /// module. `None` for a mapping without a module.
    mapped: Vec<(Range<Avma>, Option<usize>)>,
    /// The mappings that ipath made.
    own: Vec<Extent>,
    unwinder: Unwinder<FilePart>,
    cache: Cache,
    functions: Vec<Seen>,
    /// Functions by an address in them in the process. Only functions in a file.
    known: HashMap<u64, FunctionId>,
    /// Functions by their identity.
    ids: HashMap<FunctionKey, FunctionId>,
    /// The time of the last look at the mappings.
    looked: Instant,
    /// The names of generated code.
    jit: JitNames,
    /// The time at which the names of generated code were last read. `None` before the first time.
    jit_read: Option<Instant>,
    /// The number of debug files that had arrived when functions were last named.
    arrived: u64,
    /// The duration of the last look at the mappings.
    look_took: Duration,
}

/// The result of a stack walk: the function of each frame, the innermost first, and whether the
/// walk reached the root.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Path {
    /// The function of each frame, the innermost first.
    pub(super) functions: Vec<FunctionId>,
    /// True if the walk reached the root.
    pub(super) is_whole: bool,
    /// True if there was no room for the callers.
    pub(super) is_folded: bool,
}

impl Path {
    /// Keeps only the innermost frame, for paths that have no room.
    pub(super) fn innermost(mut self) -> Self {
        self.is_folded |= self.functions.len() > 1;
        self.functions.truncate(1);
        self
    }
}

/// The name of code in a file in which no function is known.
const UNKNOWN: &str = "[no known function]";

/// The minimum time between two looks at the mappings when an unmapped address is found. Also the
/// minimum time between two reads of the names of generated code.
const UNTIL_NEXT_LOOK: Duration = Duration::from_millis(200);
/// The minimum time between two looks at the mappings for mappings that were replaced.
const UNTIL_REFRESH: Duration = Duration::from_secs(1);
/// A look also waits for this many times the duration of the last look.
const LEISURE: u32 = 50;

/// The most addresses whose functions are remembered. Generated code has new addresses all the
/// time.
const MOST_KNOWN: usize = 1 << 18;

/// The most frames of a stack walk.
const MOST_FRAMES: usize = 512;

impl Code {
    /// Reads the current mappings of a process.
    pub(super) fn of(process: &Process) -> Self {
        let mut code = Self {
            process: process.clone(),
            loaded: Vec::new(),
            current: Vec::new(),
            mapped: Vec::new(),
            own: Vec::new(),
            unwinder: Unwinder::new(),
            cache: Cache::new(),
            functions: Vec::new(),
            known: HashMap::new(),
            ids: HashMap::new(),
            looked: Instant::now(),
            jit: JitNames::of(process),
            jit_read: None,
            arrived: debuginfod::arrived(),
            look_took: Duration::ZERO,
        };
        code.look();
        code
    }

    /// The mapped modules, each with the index that functions refer to.
    pub(super) fn modules(&self) -> Vec<(usize, Module)> {
        let module = |&index: &usize| (index, self.loaded[index].module.clone());
        self.current.iter().map(module).collect()
    }

    /// The path of a module's file. Empty without a module.
    pub(super) fn file(&self, module: Option<usize>) -> &str {
        module.map_or("", |index| &self.loaded[index].module.path)
    }

    /// Looks for mappings that have replaced others, if the last look is long enough ago. Call it
    /// often.
    pub(super) fn refresh(&mut self) {
        if self.looked.elapsed() > UNTIL_REFRESH.max(LEISURE * self.look_took) {
            self.look();
        }
    }

    /// The name of a function's module for users: `[jit]` for generated code, `[ipath]` for ipath's
    /// own.
    pub(super) fn shown(&self, seen: &Seen) -> &str {
        let generated = if seen.is_own { own::MODULE } else { "[jit]" };
        seen.module
            .map_or(generated, |index| &self.loaded[index].shown)
    }

    /// The number of functions seen so far.
    pub(super) fn count(&self) -> usize {
        self.functions.len()
    }

    /// The function with this number.
    pub(super) fn function(&self, id: FunctionId) -> &Seen {
        &self.functions[id as usize]
    }

    /// Reads the current mappings. If they cannot be read, the known ones stay.
    fn look(&mut self) {
        let begin = Instant::now();
        if let Ok(maps) = self.process.maps() {
            self.take_in(&maps);
        }
        self.looked = Instant::now();
        self.look_took = self.looked - begin;
    }

    fn take_in(&mut self, maps: &[Mapping]) {
        let is_known = |module: &Module| {
            let same = |l: &Loaded| l.module.path == module.path && l.module.code == module.code;
            self.loaded.iter().position(same)
        };
        self.jit.learn(maps);
        let found = modules(&self.process, maps);
        let places: Vec<Option<usize>> = found.iter().map(is_known).collect();
        let (mut mapped, mut current) = (Vec::new(), Vec::new());
        for (module, place) in found.into_iter().zip(places) {
            let index = place.unwrap_or_else(|| self.load(module));
            current.push(index);
            let code = &self.loaded[index].module.code;
            mapped.extend(code.iter().map(|m| (m.range.clone(), Some(index))));
        }
        let is_listed = |m: &&Mapping| m.execute && !mapped.iter().any(|(r, _)| *r == m.range);
        let others: Vec<_> = maps.iter().filter(is_listed).collect();
        mapped.extend(others.into_iter().map(|m| (m.range.clone(), None)));
        mapped.sort_by_key(|(range, _)| range.start);
        if mapped != self.mapped {
            self.mapped = mapped;
            self.own = own::extents(&self.process);
            self.known.clear();
        }
        // The tables of a replaced module no longer apply. They apply again if the module returns.
        if current != self.current {
            self.unwinder = Unwinder::new();
            self.cache = Cache::new();
            for loaded in current.iter().map(|&index| &self.loaded[index]) {
                if let Some((opened, bias)) = &loaded.image {
                    self.unwinder
                        .add_module(unwound(&loaded.module, opened, *bias));
                } else if let Some(unread) = &loaded.unread
                    && let Some(tables) = &unread.tables
                {
                    let module = unwound_in_memory(&loaded.module, tables, unread.bias);
                    self.unwinder.add_module(module);
                }
            }
            self.current = current;
        }
    }

    fn load(&mut self, module: Module) -> usize {
        let opened = images::of_module(&module).ok();
        let image = opened.and_then(|opened| {
            let bias = module.bias(opened.image())?;
            Some((opened, bias))
        });
        let mut is_looked_through = false;
        if let Some((opened, _)) = &image {
            const MAX_BYTES: usize = 4 << 20;
            let len = |name: &str| opened.image().section(name).map(|(_, data)| data.len());
            let has_tables = len(".eh_frame").is_some();
            is_looked_through = !has_tables || len(".text").is_some_and(|len| len <= MAX_BYTES);
            if !has_tables {
                // This takes a while. It must not be interrupted by reading samples.
                let _ = (opened.frames(), opened.context());
            }
        }
        let unread = image.is_none().then(|| unread(&module)).flatten();
        self.loaded.push(Loaded {
            shown: module.shown_name(),
            unread,
            module,
            image,
            is_looked_through,
            after: HashMap::new(),
            before: HashMap::new(),
        });
        self.loaded.len() - 1
    }

    /// Names functions by the debug files that have arrived since the last call. Returns the new
    /// number of each function, indexed by its old number, or `None` if no file has arrived.
    pub(super) fn renew(&mut self) -> Option<Vec<FunctionId>> {
        let arrived = debuginfod::arrived();
        if std::mem::replace(&mut self.arrived, arrived) == arrived {
            return None;
        }
        for loaded in &mut self.loaded {
            if let Some((image, _)) = &mut loaded.image {
                *image = images::renewed(image, loaded.module.path.as_ref());
            }
        }
        self.known.clear();
        let functions = 0..self.functions.len();
        let now = |id: usize| {
            let Seen { module, start, .. } = self.functions[id];
            if module.is_none() || !self.functions[id].linkage.is_empty() {
                return id as FunctionId;
            }
            let seen = self.seen_at(module, start, start);
            if seen.linkage.is_empty() {
                id as FunctionId
            } else {
                let key = (module, seen.start, None);
                let id = *self.ids.entry(key).or_insert(id as FunctionId);
                self.functions[id as usize] = seen;
                id
            }
        };
        Some(functions.map(now).collect())
    }

    /// The start of the executable mapping at an address, and the index of its module. Looks at the
    /// mappings again if none is known there and the last look is long enough ago. `None` if there
    /// is no mapping.
    fn mapped_at(&mut self, at: Avma) -> Option<(Avma, Option<usize>)> {
        let find = |mapped: &[(Range<Avma>, Option<usize>)]| {
            let after = mapped.partition_point(|(range, _)| range.start <= at);
            let (range, module) = mapped.get(after.checked_sub(1)?)?;
            range.contains(&at).then_some((range.start, *module))
        };
        let pause = UNTIL_NEXT_LOOK.max(LEISURE * self.look_took);
        if find(&self.mapped).is_none() && self.looked.elapsed() > pause {
            self.look();
        }
        find(&self.mapped)
    }

    /// The function at an address in the process. Code without a known function counts as one
    /// function: of its mapping, or of this address if nothing is mapped.
    pub(super) fn function_at(&mut self, at: Avma) -> FunctionId {
        if let Some(&id) = self.known.get(&at.0) {
            return id;
        }
        let (beginning, module) = self.mapped_at(at).unwrap_or((at, None));
        if module.is_none() && self.own.iter().any(|extent| extent.contains(at)) {
            return self.own();
        }
        if module.is_none_or(|index| self.loaded[index].image.is_none())
            && let Some(id) = self.generated_at(at)
        {
            // The next lookup may find other code there.
            return id;
        }
        let seen = self.seen_at(module, at, beginning);
        let id = self.id((module, seen.start, None), seen);
        if self.known.len() >= MOST_KNOWN {
            self.known.clear();
        }
        if module.is_some() {
            self.known.insert(at.0, id);
        }
        id
    }

    /// All memory that ipath mapped into the process, as a single function.
    fn own(&mut self) -> FunctionId {
        let start = self.own.iter().map(|extent| extent.start).min();
        let start = start.unwrap_or_default();
        let seen = Seen {
            module: None,
            start,
            address: Svma(start.0),
            linkage: String::new(),
            name: own::FUNCTION.to_owned(),
            serves: false,
            role: Role::Plain,
            is_of_runtime: false,
            is_own: true,
            is_known: true,
            is_built_in: false,
        };
        self.id((None, Avma(0), None), seen)
    }

    fn id(&mut self, key: FunctionKey, seen: Seen) -> FunctionId {
        let next = self.functions.len() as FunctionId;
        let id = *self.ids.entry(key).or_insert(next);
        if id == next {
            self.functions.push(seen);
        }
        id
    }

    /// The function at an address of generated code. `None` if the process has not published its
    /// name.
    fn generated_at(&mut self, at: Avma) -> Option<FunctionId> {
        if self
            .jit_read
            .is_none_or(|read| read.elapsed() > UNTIL_NEXT_LOOK)
        {
            self.jit.refresh();
            self.jit_read = Some(Instant::now());
        }
        let named = self.jit.at(at)?;
        let (start, name) = (named.start, Arc::clone(&named.name));
        let seen = Seen {
            module: None,
            start,
            address: Svma(start.0),
            linkage: String::new(),
            name: demangle(&name),
            serves: false,
            role: Role::Plain,
            is_of_runtime: false,
            is_own: false,
            is_known: true,
            is_built_in: false,
        };
        Some(self.id((None, start, Some(name)), seen))
    }

    /// Describes the code at an address. `beginning` is the start of its mapping, which stands for
    /// the function if none is known.
    fn seen_at(&self, module: Option<usize>, at: Avma, beginning: Avma) -> Seen {
        let loaded = module.map(|index| &self.loaded[index]);
        let image = loaded.and_then(|loaded| loaded.image.as_ref());
        let unread = loaded.and_then(|loaded| loaded.unread.as_ref());
        let bias = image
            .map(|&(_, bias)| bias)
            .or(unread.map(|unread| unread.bias));
        let in_file = |at: Avma| bias.map_or(Svma(at.0), |bias| bias.to_svma(at));
        let address = in_file(at);
        // Without the file, only unwind tables give the start of the function.
        let beginning = match unread {
            Some(Unread { bias, tables }) => {
                let start = tables.as_ref();
                let start = start.and_then(|tables| tables.start_before(address));
                start.map_or(at, |start| bias.to_avma(start))
            }
            None => beginning,
        };
        // A split-off part belongs to its function.
        let function = image.and_then(|(opened, _)| opened.function_at(address));
        let is_unknown = image.is_some() && function.is_none();
        let back = |to: Svma| bias.map_or(at, |bias| bias.to_avma(to));
        let (start, address, linkage) = match function {
            Some(f) => (back(f.range.start), f.range.start, f.linkage),
            None => (beginning, in_file(beginning), String::new()),
        };
        if let (Some(loaded), Some((opened, _)), "") = (loaded, image, linkage.as_str())
            && opened.lacks_symbols()
        {
            opened.want_debug_file(loaded.module.path.as_ref());
        }
        let name = match linkage.as_str() {
            "" if is_unknown => UNKNOWN.to_owned(),
            "" => name_of_start(loaded.map_or("generated code", |l| &l.shown), address),
            linkage => demangle(linkage),
        };
        Seen {
            module,
            start,
            address,
            serves: is_service(&name, loaded.map(|l| l.module.file_name())),
            role: role_of(&name),
            is_of_runtime: matches!(Fold::of(&name), Some(Fold::Runtime(_))),
            // Code that V8 compiled ahead of time, for example the handlers of its interpreter.
            is_built_in: linkage.starts_with("Builtins_"),
            linkage,
            name,
            is_own: false,
            is_known: !is_unknown,
        }
    }

    /// Walks the stack of a thread with these registers, for at most [`MOST_FRAMES`] frames.
    /// `stack` holds the bytes from the stack pointer upwards.
    pub(super) fn walk(&mut self, registers: &Registers, stack: &[u8]) -> Path {
        let bottom = registers.sp();
        let mut read = |at: u64| {
            let from = at.checked_sub(bottom).ok_or(())? as usize;
            let word = stack.get(from..from.checked_add(8).ok_or(())?).ok_or(())?;
            word.try_into().map(u64::from_le_bytes).map_err(drop)
        };
        let mut all = registers.0;
        let mut at = FrameAddress::InstructionPointer(registers.pc());
        let mut path = Path::default();
        while path.functions.len() < MOST_FRAMES {
            let inside = Avma(at.address_for_lookup());
            let Some((_, module)) = self.mapped_at(inside) else {
                break;
            };
            path.functions.push(self.function_at(inside));
            let next = match self.recipe(module, at) {
                Some(recipe) => left(&mut all, recipe, &mut read),
                None => {
                    let unwinder = &self.unwinder;
                    unwinder
                        .unwind_frame(at, &mut all, &mut self.cache, &mut read)
                        .map_err(drop)
                }
            };
            let Ok(next) = next else {
                break;
            };
            match next.and_then(FrameAddress::from_return_address) {
                Some(next) => at = next,
                None => {
                    path.is_whole = true;
                    break;
                }
            }
        }
        path
    }

    /// The recipe for the frame at an address, if the unwind tables do not describe the frame or
    /// describe it wrongly. `None` leaves the frame to the unwinder.
    fn recipe(&mut self, module: Option<usize>, at: FrameAddress) -> Option<Recipe> {
        let loaded = &mut self.loaded[module?];
        let (opened, bias) = loaded.image.as_ref()?;
        let inside = bias.to_svma(Avma(at.address_for_lookup()));
        let is_return = matches!(at, FrameAddress::ReturnAddress(_));
        let after = bias.to_svma(Avma(at.address()));
        let recipes = if loaded.is_looked_through {
            opened.frames()
        } else {
            &[]
        };
        let published = recipes.binary_search_by_key(&after, |(after, _)| *after);
        let published = published.ok().map(|index| recipes[index].1);
        if opened.image().fde(inside).is_some() {
            let is_outermost = is_return && opened.image().is_outermost(inside);
            let corrected = published.filter(|_| is_return);
            return corrected.or_else(|| is_outermost.then_some(Recipe::Outermost));
        }
        if published.is_some() {
            return published;
        }
        let known = if is_return {
            &mut loaded.after
        } else {
            &mut loaded.before
        };
        *known.entry(after).or_insert_with(|| {
            if is_return {
                let found = frames_around(opened.image(), after);
                found.iter().find(|(at, _)| *at == after).map(|(_, r)| *r)
            } else {
                before(opened, after)
            }
        })
    }
}

/// Reads the facts about a module from the memory of its process. `None` if the memory does not
/// even give its bias.
fn unread(module: &Module) -> Option<Unread> {
    let bias = module.bias_in_memory()?;
    let tables = module.unwind_tables_in_memory(bias);
    Some(Unread { bias, tables })
}
