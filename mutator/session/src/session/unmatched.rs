//! Patterns that name nothing, and what may have been meant.

use std::collections::HashMap;
use std::fmt;

use patcher::elf::LinkTables;
use patcher::image::Image;
use patcher::select::{Near, Pattern, with_last};
use patcher::{Bias, Svma};

use super::shown::{names_shown_as, short_name};
use ipath_base::error::Failure;
use ipath_base::hint::{Hint, Word, Words, hint};
use ipath_symbols::images::{self, OpenImage};
use ipath_symbols::jit::JitNames;
use ipath_target::process::modules::{Module, VDSO};

/// Names that are offered at most.
const MOST: usize = 3;

/// Commands that have patterns wait.
const WAIT: [&str; 3] = ["attach", "run", "add"];

/// A pattern without a match.
pub struct Unmatched {
    /// Its text.
    pub pattern: String,
    /// Names that may have been meant.
    pub near: Vec<String>,
    /// Copies of functions it names that the compiler has put into others.
    pub inlined: u64,
    /// A name of code that the process has made at run time, where it is one of those.
    pub jit: Option<String>,
    /// True if the pattern is an address in code whose functions have no known bounds.
    pub is_in_unbounded_code: bool,
    /// Why it may have no match though it is spelled right.
    pub why: Option<Hint>,
    /// The names of all modules, where it names none of them.
    pub modules: Option<Vec<String>>,
    /// True if it may have a match in a library that a process loads later.
    pub may_come: bool,
}

impl Unmatched {
    /// That it has none, and nothing more.
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

    /// As a user meets it.
    pub fn failure(&self, operation: &str, subject: &str) -> Failure {
        let failure = Failure::new(operation, subject, self);
        if let Some(modules) = &self.modules {
            return failure.hint(loaded(modules));
        }
        // What is inlined is spelled as it was meant.
        if self.inlined > 0 || self.jit.is_some() {
            return failure;
        }
        let later = "with --pending it waits for a library that is loaded later";
        let may_wait = self.may_come && WAIT.contains(&operation);
        let later = may_wait.then(|| Hint::from(later));
        let rest = match (self.why.clone(), later) {
            (Some(why), Some(later)) => Some(hint!("{}; {}", why, later)),
            (why, later) => why.or(later),
        };
        failure.maybe_hint(match (self.did_you_mean(), rest) {
            (Some(near), Some(rest)) => Some(hint!("{} {}", near, rest)),
            (near, rest) => near.or(rest),
        })
    }

    /// A question that offers similar names.
    pub fn did_you_mean(&self) -> Option<Hint> {
        let near = Words(&self.near);
        (!self.near.is_empty()).then(|| hint!("did you mean {}?", near))
    }
}

impl fmt::Display for Unmatched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.modules.is_some() {
            return write!(f, "no module of that name for '{}'", self.pattern);
        }
        write!(f, "no function matches '{}'", self.pattern)?;
        if let Some(name) = &self.jit {
            return write!(f, ": {name} is JIT code, which is not patched");
        }
        match self.inlined {
            0 if self.is_in_unbounded_code => f.write_str(
                ": the code there has neither symbols nor unwind entries, and does not show where its function begins and ends",
            ),
            0 => Ok(()),
            1 => f.write_str(": it exists only as 1 inlined copy"),
            copies => write!(f, ": it exists only as {copies} inlined copies"),
        }
    }
}

/// Says which modules there are.
fn loaded(modules: &[String]) -> Hint {
    const SHOWN: usize = 12;
    hint!(
        "loaded are {}; with --pending it waits for a library that is loaded later",
        Hint::some_of(modules, SHOWN)
    )
}

/// The names of these modules of a process, where a pattern names a module and none of these.
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

/// Why a pattern may have no match in these images, which have these names and of which it means all.
pub(super) fn without_symbols<'n>(
    pattern: &Pattern,
    images: impl Iterator<Item = (&'static OpenImage, &'n str)>,
) -> Option<Hint> {
    let mut stripped = images.filter(|(image, _)| image.lacks_symbols());
    let (_, name) = stripped.next().filter(|_| !pattern.is_address())?;
    Some(hint!(
        "{} is stripped: what it does not export has no name here, unless its debug information is installed or DEBUGINFOD_URLS names a server that has it",
        Word(name)
    ))
}

/// A hint if the pattern matches functions in these images, but other code is mapped at their
/// place. Each image comes with its name.
pub(super) fn not_mapped<'n>(
    pattern: &Pattern,
    images: impl Iterator<Item = (&'static OpenImage, &'n str)>,
) -> Option<Hint> {
    let mut images = images.filter(|_| !pattern.is_address());
    let has_it = |(image, name): &(&OpenImage, &str)| !pattern.select(image.image, name).is_empty();
    let (_, name) = images.find(has_it)?;
    Some(hint!(
        "{} has it, but other code is mapped where that part of the file would be",
        Word(name)
    ))
}

/// True if the pattern is a code address in one of these images. The images have these biases.
pub(super) fn is_in_unbounded_code(
    pattern: &Pattern,
    mut images: impl Iterator<Item = (&'static OpenImage, Bias)>,
) -> bool {
    images.any(|(opened, bias)| {
        let at = pattern.absolute_address().map(|at| bias.to_svma(at));
        let at = at.or(pattern.address_in_file());
        at.is_some_and(|at| opened.image.is_code(at) && opened.function_at(at).is_none())
    })
}

/// The same of an address that no code of these modules of a process has: it may be one of a file.
pub(super) fn address_in_file(pattern: &Pattern, modules: &[Module]) -> Option<Hint> {
    let at = pattern.absolute_address()?;
    let has_it = |module: &&Module| {
        let opened = images::of_module(module);
        opened.is_ok_and(|o| Pattern::select_at(o.image, Svma(at.0)).is_some())
    };
    let module = modules.iter().find(has_it)?;
    let place = format!("{}+{at}", module.shown_name());
    Some(hint!(
        "the process has no code there; the address in a file is written with its name: {}",
        Word(&place)
    ))
}

/// Code that the process of these modules has made at run time and that a pattern may mean: names that compilers give
/// there hold those of the source.
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

/// How many of these inlined copies, by linkage name, are of functions that a pattern names.
pub(super) fn copies_of(pattern: &Pattern, copies: &HashMap<String, u64>) -> u64 {
    let named = copies.iter().filter(|(name, _)| pattern.names(name));
    named.map(|(_, copies)| copies).sum()
}

/// Names that may have been meant by a pattern without a match in these images, of a process with these modules.
pub(super) fn near(
    pattern: &Pattern,
    modules: &[Module],
    images: impl Iterator<Item = &'static OpenImage> + Clone,
) -> Vec<String> {
    let defined = definitions(pattern, modules);
    if !defined.is_empty() {
        return defined;
    }
    // Several functions are shown by this form.
    let shown = names_shown_as(pattern, images.clone());
    if !shown.is_empty() {
        return shown.into_iter().take(MOST).collect();
    }
    let found = images
        .clone()
        .flat_map(|i| pattern.suggestions(i.image, MOST));
    let mut found: Vec<_> = found.collect();
    with_last(&mut found);
    found.sort_by_key(|near| near.distance);
    let mut names = Vec::new();
    for Near { name, .. } in found {
        if names.len() < MOST && !names.contains(&name) {
            names.push(name);
        }
    }
    let shorter = |name: String| short_name(&name, images.clone()).unwrap_or(name);
    names.into_iter().map(shorter).collect()
}

/// Where the functions are that a module of the pattern imports by that name: what it has itself
/// are entries of its linkage table, which only lead there.
fn definitions(pattern: &Pattern, modules: &[Module]) -> Vec<String> {
    let Some(name) = pattern.name().filter(|_| pattern.has_module()) else {
        return Vec::new();
    };
    let imports = |module: &&Module| {
        module.is_called(|name| pattern.module_matches(name))
            && images::of_module(module).is_ok_and(|i| imports(i.image, name))
    };
    if !modules.iter().any(|m| imports(&m)) {
        return Vec::new();
    }
    let Ok(plain) = Pattern::parse(name) else {
        return Vec::new();
    };
    let has_it = |module: &&Module| {
        let image = images::of_module(module);
        module.path != VDSO && image.is_ok_and(|i| !plain.select(i.image, "").is_empty())
    };
    let found = modules.iter().filter(has_it).take(MOST);
    found.map(|m| format!("{}!{name}", m.file_name())).collect()
}

/// True if the image takes a function of this name from another one.
fn imports(image: &Image<'_>, name: &str) -> bool {
    LinkTables::parse(image.data()).is_ok_and(|tables| tables.imports(name))
}
