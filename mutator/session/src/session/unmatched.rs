//! Patterns without a match, and the names that may have been meant.

use std::collections::HashMap;
use std::fmt;

use patcher::elf::LinkTables;
use patcher::image::Image;
use patcher::inside;
use patcher::select::{Near, Pattern, with_last};
use patcher::{Bias, Svma};

use super::shown::{names_shown_as, short_name};
use ipath_symbols::images::{self, OpenImage};
use ipath_symbols::jit::JitNames;
use ipath_target::process::modules::{Module, VDSO};

/// The most names to suggest.
const MAX_NAMES: usize = 3;

/// Why a pattern may match nothing although it is spelled right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hidden {
    /// This file is stripped: functions that it does not export have no name.
    Stripped(String),
    /// This file has the function, but other code is mapped at its address.
    NotMapped(String),
    /// This file has no debug information, so its inlined copies are not known.
    NoCopies(String),
    /// The process has no code at the address. This is its form as an address in a file.
    InFile(String),
    /// No debug information of the process names a source file of this name.
    NoSource(String),
    /// The function `name` has only this many basic blocks and loops.
    NoPart {
        name: String,
        blocks: usize,
        loops: usize,
    },
    /// The basic blocks of the function are not known, for this reason.
    NoGraph(inside::Refusal),
    /// No statement of the source line has code. Statements of these lines near it have, ascending.
    NoStatement(Vec<u32>),
}

/// A pattern without a match.
pub struct Unmatched {
    /// The text of the pattern.
    pub pattern: String,
    /// Names that may have been meant.
    pub near: Vec<String>,
    /// The number of inlined copies of functions that the pattern names.
    pub inlined: u64,
    /// A name of run-time generated code that the pattern may mean. `None` if there is none.
    pub jit: Option<String>,
    /// True if the pattern is an address in code whose functions have no known bounds.
    pub is_in_unbounded_code: bool,
    /// Why the pattern may match nothing although it is spelled right. `None` if no reason is
    /// known.
    pub why: Option<Hidden>,
    /// The names of all modules, if the pattern names a module that is not among them. Otherwise
    /// `None`.
    pub modules: Option<Vec<String>>,
    /// True if the pattern may have a match in a library that a process loads later.
    pub may_come: bool,
}

impl Unmatched {
    /// A pattern without a match and without suggestions.
    pub(super) fn only(pattern: &Pattern) -> Self {
        Self {
            pattern: pattern.text().to_owned(),
            near: Vec::new(),
            inlined: 0,
            jit: None,
            is_in_unbounded_code: false,
            why: None,
            modules: None,
            may_come: false,
        }
    }
}

impl fmt::Display for Unmatched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.modules.is_some() {
            return write!(f, "no module of that name for '{}'", self.pattern);
        }
        if let Some(
            Hidden::NoSource(_)
            | Hidden::NoStatement(_)
            | Hidden::NoPart { .. }
            | Hidden::NoGraph(_),
        ) = &self.why
        {
            return write!(f, "no instruction matches '{}'", self.pattern);
        }
        write!(f, "no function matches '{}'", self.pattern)?;
        if let Some(name) = &self.jit {
            return write!(f, ": {name} is JIT code, which is not patched");
        }
        match self.inlined {
            0 if self.is_in_unbounded_code => f.write_str(
                ": the code there has neither symbols nor unwind entries, so the bounds of its \
                function are unknown",
            ),
            0 => Ok(()),
            1 => f.write_str(": it exists only as 1 inlined copy"),
            copies => write!(f, ": it exists only as {copies} inlined copies"),
        }
    }
}

/// The names of these modules, if a pattern names a module that is not among them. `None` for other
/// patterns, and without modules.
pub(super) fn other_modules(pattern: &Pattern, modules: &[Module]) -> Option<Vec<String>> {
    let is_called = |m: &Module| m.is_called(|name| pattern.module_matches(name));
    if !pattern.has_module() || modules.is_empty() || modules.iter().any(is_called) {
        return None;
    }
    let mut names: Vec<String> = Vec::new();
    for module in modules.iter().filter(|m| m.path != VDSO) {
        let name = module.file_name().to_owned();
        let name = match module.started_as().filter(|other| **other != name) {
            Some(other) => format!("{name} (started as {other})"),
            None => name,
        };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    Some(names)
}

/// Why a pattern without a match in these images may be spelled right: one of them is stripped.
/// Each image comes with its name. `None` if no image is stripped, or for an address.
pub(super) fn without_symbols<'n>(
    pattern: &Pattern,
    images: impl Iterator<Item = (&'n OpenImage, &'n str)>,
) -> Option<Hidden> {
    let mut stripped = images.filter(|(image, _)| image.lacks_symbols());
    let (_, name) = stripped.next().filter(|_| !pattern.is_address())?;
    Some(Hidden::Stripped(name.to_owned()))
}

/// The first image with a match, for a pattern whose functions are not mapped: other code is mapped
/// at their addresses. Each image comes with its name. `None` if no image has a match, or for an
/// address.
pub(super) fn not_mapped<'n>(
    pattern: &Pattern,
    images: impl Iterator<Item = (&'n OpenImage, &'n str)>,
) -> Option<Hidden> {
    let mut images = images.filter(|_| !pattern.is_address());
    let has_it =
        |(image, name): &(&OpenImage, &str)| !pattern.select(image.image(), name).is_empty();
    let (_, name) = images.find(has_it)?;
    Some(Hidden::NotMapped(name.to_owned()))
}

/// True if the pattern is an address in the code of one of these images, and no known function
/// contains it. The images have these biases.
pub(super) fn is_in_unbounded_code<'n>(
    pattern: &Pattern,
    mut images: impl Iterator<Item = (&'n OpenImage, Bias)>,
) -> bool {
    images.any(|(opened, bias)| {
        let at = pattern.absolute_address().map(|at| bias.to_svma(at));
        let at = at.or(pattern.address_in_file());
        at.is_some_and(|at| opened.image().is_code(at) && opened.function_at(at).is_none())
    })
}

/// The form `FILE+ADDRESS` of a pattern's absolute address, by the first module whose file has code
/// at it. `None` if the pattern is no such address or no file has. Used if the process has no code
/// at the address.
pub(super) fn address_in_file(pattern: &Pattern, modules: &[Module]) -> Option<Hidden> {
    let at = pattern.absolute_address()?;
    let has_it = |module: &&Module| {
        let opened = images::of_module(module);
        opened.is_ok_and(|o| Pattern::select_at(o.image(), Svma(at.0)).is_some())
    };
    let module = modules.iter().find(has_it)?;
    Some(Hidden::InFile(format!("{}+{at}", module.shown_name())))
}

/// The name of run-time generated code that a pattern may mean. Such names contain the name in the
/// source. `None` if there is none.
pub(super) fn jit(pattern: &Pattern, modules: &[Module]) -> Option<String> {
    let process = modules.first().map(Module::process)?;
    if pattern.has_module() {
        return None;
    }
    let mut names = JitNames::of(process);
    names.learn(&process.maps().unwrap_or_default());
    names.refresh();
    let is_meant = |name: &&str| {
        let holds = pattern.name().is_some_and(|wanted| name.contains(wanted));
        holds || pattern.names(name)
    };
    names.names().find(is_meant).map(str::to_owned)
}

/// Number of these inlined copies, given by linkage name, whose functions a pattern names.
pub(super) fn copies_of(pattern: &Pattern, copies: &HashMap<String, u64>) -> u64 {
    let named = copies.iter().filter(|(name, _)| pattern.names(name));
    named.map(|(_, copies)| copies).sum()
}

/// Suggests names for a pattern without a match in these images, at most [`MAX_NAMES`]. `modules`
/// are those of the process.
pub(super) fn near<'n>(
    pattern: &Pattern,
    modules: &[Module],
    images: impl Iterator<Item = &'n OpenImage> + Clone,
) -> Vec<String> {
    let defined = definitions(pattern, modules);
    if !defined.is_empty() {
        return defined;
    }
    // Several functions are shown in this form.
    let shown = names_shown_as(pattern, images.clone());
    if !shown.is_empty() {
        return shown.into_iter().take(MAX_NAMES).collect();
    }
    let found = images
        .clone()
        .flat_map(|i| pattern.suggestions(i.image(), MAX_NAMES));
    let mut found: Vec<_> = found.collect();
    with_last(&mut found);
    found.sort_by_key(|near| near.distance);
    let mut names = Vec::new();
    for Near { name, .. } in found {
        if names.len() < MAX_NAMES && !names.contains(&name) {
            names.push(name);
        }
    }
    let shorter = |name: String| short_name(&name, images.clone()).unwrap_or(name);
    names.into_iter().map(shorter).collect()
}

/// Patterns for a function that the pattern's module imports, in the modules that define it. The
/// pattern's module has only an entry in its linkage table, which leads to the definition. Empty if
/// the pattern names no module, or if the module does not import the function.
fn definitions(pattern: &Pattern, modules: &[Module]) -> Vec<String> {
    let Some(name) = pattern.name().filter(|_| pattern.has_module()) else {
        return Vec::new();
    };
    let imports = |module: &&Module| {
        module.is_called(|name| pattern.module_matches(name))
            && images::of_module(module).is_ok_and(|i| imports(i.image(), name))
    };
    if !modules.iter().any(|m| imports(&m)) {
        return Vec::new();
    }
    let Ok(plain) = Pattern::parse(name) else {
        return Vec::new();
    };
    let has_it = |module: &&Module| {
        let image = images::of_module(module);
        module.path != VDSO && image.is_ok_and(|i| !plain.select(i.image(), "").is_empty())
    };
    let found = modules.iter().filter(has_it).take(MAX_NAMES);
    found.map(|m| format!("{}!{name}", m.file_name())).collect()
}

/// True if the image imports a function of this name.
fn imports(image: &Image<'_>, name: &str) -> bool {
    LinkTables::parse(image.data()).is_ok_and(|tables| tables.imports(name))
}
