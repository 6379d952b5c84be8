//! Which functions of a process patterns name, and how each would be patched.

use std::collections::{BTreeSet, HashMap};
use std::fmt;

use patcher::function::Function;
use patcher::image::Image;
use patcher::plan::{Allowed, Effects, FunctionPlan, RefuseReason, plan_allowed};
use patcher::select::{Pattern, name_of_start};
use patcher::{Bias, Svma};

use super::elsewhere::{Elsewhere, inlined_in};
use crate::error::Failure;
use crate::images::{self, OpenImage};
use crate::process::modules::{Module, VDSO};
use crate::segment::Reaper;

/// A function of a loaded module that a pattern names.
pub struct Candidate {
    /// Index of the module in the list it was selected from.
    pub module: usize,
    /// The module's file.
    pub image: &'static OpenImage,
    /// Address in the process minus address in the file.
    pub bias: Bias,
    /// The function with its plan.
    pub plan: FunctionPlan,
    /// Its demangled name; `module+0xADDR` where it has none.
    pub name: String,
    /// Where calls go that do not come to it.
    pub elsewhere: Elsewhere,
    /// What it tells, where it is not measured.
    pub reaper: Option<Reaper>,
    /// Whether breakpoints may lead to what nothing else can.
    pub traps: bool,
}

/// What patterns name.
#[derive(Default)]
pub struct Selection {
    /// What the process allows, for which it was planned.
    pub allowed: Allowed,
    /// Every function matched, in the order of modules and addresses, each once.
    pub candidates: Vec<Candidate>,
    /// Patterns without a match.
    pub unmatched: Vec<Unmatched>,
    /// Modules that could not be read, with the reason.
    pub unreadable: Vec<(String, String)>,
}

/// A pattern without a match.
pub struct Unmatched {
    /// Its text.
    pub pattern: String,
    /// Names that may have been meant.
    pub near: Vec<String>,
    /// Copies of functions it names that the compiler has put into others.
    pub inlined: u64,
}

impl Unmatched {
    /// As a user meets it.
    pub fn failure(&self, operation: &str, subject: &str) -> Failure {
        let failure = Failure::new(operation, subject, self);
        // What is inlined is spelled as it was meant.
        if self.near.is_empty() || self.inlined > 0 {
            return failure;
        }
        failure.hint(format!("did you mean {}?", self.near.join(", ")))
    }
}

impl fmt::Display for Unmatched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no function matches '{}'", self.pattern)?;
        match self.inlined {
            0 => Ok(()),
            1 => f.write_str(": it exists only as 1 inlined copy"),
            copies => write!(f, ": it exists only as {copies} inlined copies"),
        }
    }
}

/// Looks the patterns up in the modules of a process and plans what they name. A pattern without
/// a module is looked up in all of them.
pub fn select(
    modules: &[Module],
    patterns: &[Pattern],
    want: Effects,
    allowed: Allowed,
) -> Selection {
    let (mut selection, matched, opened) = look_up(modules, patterns, want, allowed);
    for (pattern, _) in patterns.iter().zip(matched).filter(|(_, matched)| !matched) {
        let meant = opened.iter().filter(|(m, _)| is_meant(pattern, m));
        let inlined = meant
            .map(|(m, i)| copies_of(pattern, &inlined_in(i, &m.path)))
            .sum();
        let mut near = definitions(pattern, modules);
        if near.is_empty() {
            near = suggestions(pattern, &opened);
        }
        selection.unmatched.push(Unmatched {
            pattern: pattern.text().to_owned(),
            near,
            inlined,
        });
    }
    selection
}

/// How many of these inlined copies, by linkage name, are of functions that a pattern names.
pub fn copies_of(pattern: &Pattern, copies: &HashMap<String, u64>) -> u64 {
    let named = copies.iter().filter(|(name, _)| pattern.names(name));
    named.map(|(_, copies)| copies).sum()
}

/// What was found, which patterns have a match, and the modules that were looked into.
type Found<'m> = (Selection, Vec<bool>, Vec<(&'m Module, &'static OpenImage)>);

fn look_up<'m>(
    modules: &'m [Module],
    patterns: &[Pattern],
    want: Effects,
    allowed: Allowed,
) -> Found<'m> {
    let mut selection = Selection {
        allowed,
        ..Selection::default()
    };
    let mut matched = vec![false; patterns.len()];
    let mut opened = Vec::new();
    for (index, module) in modules.iter().enumerate() {
        let wanted = patterns.iter().any(|p| is_meant(p, module));
        if !wanted {
            continue;
        }
        let image = match images::of_module(module) {
            Ok(image) => image,
            Err(error) => {
                selection
                    .unreadable
                    .push((module.path.clone(), error.to_string()));
                continue;
            }
        };
        let Some(bias) = module.bias(&image.image) else {
            let cause = "the file is not the one that is mapped".to_owned();
            selection.unreadable.push((module.path.clone(), cause));
            continue;
        };
        opened.push((module, image));
        let mut functions: Vec<Function> = Vec::new();
        let mut by_address: BTreeSet<Svma> = BTreeSet::new();
        for (pattern, matched) in patterns.iter().zip(&mut matched) {
            let here = found(pattern, module, image, bias);
            for function in here.into_iter().filter(|f| module.maps_function(bias, f)) {
                *matched = true;
                if pattern.is_address() {
                    by_address.insert(function.range.start);
                }
                if !functions
                    .iter()
                    .any(|f| f.range.start == function.range.start)
                {
                    functions.push(function);
                }
            }
        }
        functions.sort_by_key(|f| f.range.start);
        let is_named = |f: &Function| !f.linkage.is_empty();
        let inlined = match functions.iter().any(is_named) {
            true => inlined_in(image, &module.path),
            false => HashMap::new(),
        };
        for function in functions {
            let name = display_name(&function, module.file_name());
            let plan = match module.path.as_str() {
                VDSO => FunctionPlan::refusal(&function, RefuseReason::Vdso),
                _ if module.shares(bias, &function) => {
                    FunctionPlan::refusal(&function, RefuseReason::SharedText)
                }
                _ => plan_allowed(&image.image, &image.context, &function, want, allowed),
            };
            // A glob means functions: what has no name and is none was not meant.
            let is_meant =
                !function.linkage.is_empty() || by_address.contains(&function.range.start);
            if !is_meant && plan.entry.outcome == Err(RefuseReason::Fragment) {
                continue;
            }
            selection.candidates.push(Candidate {
                module: index,
                image,
                bias,
                plan,
                name,
                elsewhere: Elsewhere::of(image, &function, &inlined),
                reaper: None,
                traps: false,
            });
        }
    }
    (selection, matched, opened)
}

fn is_meant(pattern: &Pattern, module: &Module) -> bool {
    match pattern.absolute_address() {
        Some(address) => module.code.iter().any(|m| m.contains(address)),
        None => pattern.module_matches(module.file_name()),
    }
}

fn found(pattern: &Pattern, module: &Module, image: &OpenImage, bias: Bias) -> Vec<Function> {
    match is_meant(pattern, module) {
        true => image.select(pattern, module.file_name(), bias),
        false => Vec::new(),
    }
}

/// Where the functions are that a module of the pattern imports by that name: what it has itself
/// are entries of its linkage table, which only lead there.
fn definitions(pattern: &Pattern, modules: &[Module]) -> Vec<String> {
    const MOST: usize = 3;
    let Some(name) = pattern.name().filter(|_| pattern.has_module()) else {
        return Vec::new();
    };
    let imports = |module: &&Module| {
        pattern.module_matches(module.file_name())
            && images::of_module(module).is_ok_and(|i| imports(&i.image, name))
    };
    if !modules.iter().any(|m| imports(&m)) {
        return Vec::new();
    }
    let Ok(plain) = Pattern::parse(name) else {
        return Vec::new();
    };
    let has_it = |module: &&Module| {
        let image = images::of_module(module);
        module.path != VDSO && image.is_ok_and(|i| !plain.select(&i.image, "").is_empty())
    };
    let found = modules.iter().filter(has_it).take(MOST);
    found.map(|m| format!("{}!{name}", m.file_name())).collect()
}

/// Whether the image takes a function of this name from another one.
fn imports(image: &Image<'_>, name: &str) -> bool {
    let Ok(elf) = goblin::elf::Elf::parse(image.data()) else {
        return false;
    };
    let is_it =
        |s: goblin::elf::Sym| s.st_shndx == 0 && elf.dynstrtab.get_at(s.st_name) == Some(name);
    elf.dynsyms.iter().any(is_it)
}

fn suggestions(pattern: &Pattern, opened: &[(&Module, &'static OpenImage)]) -> Vec<String> {
    const MOST: usize = 3;
    let mut names = Vec::new();
    for (_, image) in opened {
        for name in pattern.suggestions(&image.image, MOST) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    names.truncate(MOST);
    names
}

/// The demangled name, or where the function stands in its module.
pub fn display_name(function: &Function, module: &str) -> String {
    if function.linkage.is_empty() {
        name_of_start(module, function.range.start)
    } else {
        function.name()
    }
}
