//! The code of a process: which function an address is in, and how the stack is walked from there.

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
use ipath_profile::folding::Fold;
use ipath_profile::services::is_service;
use ipath_symbols::debuginfod;
use ipath_symbols::images::{self, OpenImage};
use ipath_symbols::jit::JitNames;
use ipath_target::process::modules::{Module, modules};
use ipath_target::process::unread::UnwindTables;
use ipath_target::process::{Extent, Mapping, Process};

/// Where a function is: its module, first address, and what it is called if it is generated code.
type Key = (Option<usize>, Avma, Option<Arc<str>>);

/// A function that has been seen, by number.
pub(super) type FunctionId = u32;

/// A function that has been seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// Index of its module; `None` for code that no file has.
    pub(super) module: Option<usize>,
    /// First address in the process.
    pub(super) start: Avma,
    /// The same in its file, or in the process where it is in none.
    pub(super) address: Svma,
    /// Its name as the linker knows it; empty where it has none.
    pub(super) linkage: String,
    /// Demangled; where it stands in its module where it has none.
    pub(super) name: String,
    /// See [`is_service`].
    pub(super) serves: bool,
    /// Its role in waits.
    pub(super) role: Role,
    /// True if it belongs to a runtime, and enters a program or a thread.
    pub(super) is_of_runtime: bool,
    /// True if ipath has put it there.
    pub(super) is_own: bool,
    /// False of code of a file in which no function is known.
    pub(super) is_known: bool,
    /// True for a part of a compiler's runtime that generated code calls all the time.
    pub(super) is_built_in: bool,
}

/// A module and what is known of it.
struct Loaded {
    module: Module,
    /// What a user calls it.
    shown: String,
    image: Option<(&'static OpenImage, Bias)>,
    /// What stands for its file if that cannot be read.
    unread: Option<Unread>,
    /// Whether all of its code is looked through for how frames are left: what is large takes seconds, and is done for
    /// files alone that have no tables, before anything is sampled.
    is_looked_through: bool,
    /// How frames are left that nothing else tells of, once they have been looked at: after calls, and before other
    /// instructions.
    after: HashMap<Svma, Option<Recipe>>,
    before: HashMap<Svma, Option<Recipe>>,
}

/// A module whose file cannot be read.
struct Unread {
    bias: Bias,
    tables: Option<&'static UnwindTables>,
}

/// The code that a process has mapped.
pub(super) struct Code {
    process: Process,
    /// All that have been seen; those that are mapped now, by index.
    loaded: Vec<Loaded>,
    current: Vec<usize>,
    /// Executable mappings, by address, with the module of each.
    mapped: Vec<(Range<Avma>, Option<usize>)>,
    /// What of these ipath has put there.
    own: Vec<Extent>,
    unwinder: Unwinder<&'static [u8]>,
    cache: Cache,
    functions: Vec<Seen>,
    /// Function by an address in it.
    known: HashMap<u64, FunctionId>,
    /// Function by where it is.
    ids: HashMap<Key, FunctionId>,
    looked: Instant,
    /// What generated code is called, and when that was read last.
    jit: JitNames,
    jit_read: Option<Instant>,
    /// How many debug files had come when functions were last named.
    arrived: u64,
    /// How long looking took the last time.
    look_took: Duration,
}

/// What a walk has come to: the function of each frame, the innermost first, and whether it came to the root.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Path {
    pub(super) functions: Vec<FunctionId>,
    pub(super) is_whole: bool,
    /// True if there was no room for the callers.
    pub(super) is_folded: bool,
}

impl Path {
    /// What remains where there is no room for it.
    pub(super) fn innermost(mut self) -> Self {
        self.is_folded |= self.functions.len() > 1;
        self.functions.truncate(1);
        self
    }
}

/// What code of a file is called in which no function is known.
const UNKNOWN: &str = "[no known function]";

/// Time between two looks at what is mapped: where code is met that is not, and at what else has come to the same place.
const UNTIL_NEXT_LOOK: Duration = Duration::from_millis(200);
const UNTIL_REFRESH: Duration = Duration::from_secs(1);
/// And so many times as long as the last look took.
const LEISURE: u32 = 50;

/// Addresses whose functions are remembered, at most: generated code has new ones all the time.
const MOST_KNOWN: usize = 1 << 18;

/// Deeper stacks are cut off.
const MOST_FRAMES: usize = 512;

impl Code {
    /// The code of a process as it is now.
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

    /// The modules that are mapped, each with the index by which functions name it.
    pub(super) fn modules(&self) -> Vec<(usize, Module)> {
        let module = |&index: &usize| (index, self.loaded[index].module.clone());
        self.current.iter().map(module).collect()
    }

    /// The file that a module has been mapped from.
    pub(super) fn file(&self, module: Option<usize>) -> &str {
        module.map_or("", |index| &self.loaded[index].module.path)
    }

    /// Takes in what may have been mapped in the place of something else. To be called often.
    pub(super) fn refresh(&mut self) {
        if self.looked.elapsed() > UNTIL_REFRESH.max(LEISURE * self.look_took) {
            self.look();
        }
    }

    /// What a user calls a module.
    pub(super) fn shown(&self, seen: &Seen) -> &str {
        let generated = if seen.is_own { own::MODULE } else { "[jit]" };
        seen.module
            .map_or(generated, |index| &self.loaded[index].shown)
    }

    /// How many functions have been seen.
    pub(super) fn count(&self) -> usize {
        self.functions.len()
    }

    pub(super) fn function(&self, id: FunctionId) -> &Seen {
        &self.functions[id as usize]
    }

    /// Takes in what is mapped now.
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
        // Where another file was before, its tables say nothing any more; where one has come back, they do again.
        if current != self.current {
            self.unwinder = Unwinder::new();
            self.cache = Cache::new();
            for loaded in current.iter().map(|&index| &self.loaded[index]) {
                if let Some((opened, bias)) = loaded.image {
                    self.unwinder
                        .add_module(unwound(&loaded.module, opened, bias));
                } else if let Some(unread) = &loaded.unread
                    && let Some(tables) = unread.tables
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
        let image = opened.and_then(|opened| Some((opened, module.bias(opened.image)?)));
        let mut is_looked_through = false;
        if let Some((opened, _)) = image {
            const MOST: usize = 4 << 20;
            let len = |name: &str| opened.image.section(name).map(|(_, data)| data.len());
            let has_tables = len(".eh_frame").is_some();
            is_looked_through = !has_tables || len(".text").is_some_and(|len| len <= MOST);
            if !has_tables {
                // It takes a while, in which nothing should have to be taken in.
                let _ = (opened.frames(), &*opened.context);
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

    /// Names functions by the debug files that have come since: which function each is now, where any has come.
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

    /// The executable mapping at an address, by where it begins, with its module.
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

    /// The function that an address is in.
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
            // Other code may be there next time.
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

    /// All that ipath has put there, as one function.
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

    fn id(&mut self, key: Key, seen: Seen) -> FunctionId {
        let next = self.functions.len() as FunctionId;
        let id = *self.ids.entry(key).or_insert(next);
        if id == next {
            self.functions.push(seen);
        }
        id
    }

    /// The function that an address is in, where the process has written down what its generated code is called.
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

    /// What is at an address of a mapping that begins there; all of that where no function is known.
    fn seen_at(&self, module: Option<usize>, at: Avma, beginning: Avma) -> Seen {
        let loaded = module.map(|index| &self.loaded[index]);
        let image = loaded.and_then(|loaded| loaded.image);
        let unread = loaded.and_then(|loaded| loaded.unread.as_ref());
        let bias = image
            .map(|(_, bias)| bias)
            .or(unread.map(|unread| unread.bias));
        let in_file = |at: Avma| bias.map_or(Svma(at.0), |bias| bias.to_svma(at));
        let address = in_file(at);
        // Without the file the tables tell where the function begins, or nothing does.
        let beginning = match unread {
            Some(Unread { bias, tables }) => {
                let start = tables.and_then(|tables| tables.start_before(address));
                start.map_or(at, |start| bias.to_avma(start))
            }
            None => beginning,
        };
        // A part that was split off is its function's.
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
            // The code that V8 has compiled ahead, such as the handlers of its interpreter.
            is_built_in: linkage.starts_with("Builtins_"),
            linkage,
            name,
            is_own: false,
            is_known: !is_unknown,
        }
    }

    /// Walks the stack of a thread with these registers, of which `stack` is what lies at the stack pointer and above.
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

    /// How the frame at an address is left, where its unwind tables do not say so.
    fn recipe(&mut self, module: Option<usize>, at: FrameAddress) -> Option<Recipe> {
        let loaded = &mut self.loaded[module?];
        let (opened, bias) = loaded.image?;
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
        if opened.image.fde(inside).is_some() {
            let is_outermost = is_return && opened.image.is_outermost(inside);
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
                let found = frames_around(opened.image, after);
                found.iter().find(|(at, _)| *at == after).map(|(_, r)| *r)
            } else {
                before(opened, after)
            }
        })
    }
}

/// What the process's memory tells of a module. `None` if that is not even where its code belongs.
fn unread(module: &Module) -> Option<Unread> {
    let bias = module.bias_in_memory()?;
    // As files that are read, it stays until the command ends.
    let tables = module.unwind_tables_in_memory(bias).map(Box::new);
    Some(Unread {
        bias,
        tables: tables.map(|tables| &*Box::leak(tables)),
    })
}
