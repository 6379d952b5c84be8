//! Matching functions by the forms in which screens show their names.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use patcher::function::demangle_without_arguments;
use patcher::select::Pattern;
use patcher::{Avma, Bias};

use ipath_base::files::FileBytes;
use ipath_profile::display_name::{is_clone, method, short_forms};
use ipath_symbols::images::{self, OpenImage};
use ipath_target::process::modules::Module;

/// The longest name in a command, in bytes. A longer one is shortened if the short form is unique.
const LONGEST: usize = 60;

/// Replaces omitted text on a screen.
const GAP: char = '…';

/// The demangled names that a screen would show as the pattern's text, or that match its glob or
/// regular expression as shown. They have arguments if the pattern has some. Empty if no screen
/// would show the pattern.
pub(super) fn names_shown_as<'i>(
    pattern: &Pattern,
    images: impl Iterator<Item = &'i OpenImage>,
) -> BTreeSet<String> {
    let cut = pattern.name().filter(|name| name.contains(GAP));
    // Screens also leave out the path.
    let cut = cut.and_then(|name| Pattern::parse(&format!("*{}", name.replace(GAP, "*"))).ok());
    let pattern = cut.as_ref().unwrap_or(pattern);
    let shown = pattern.name();
    // Only templates and arguments are shown in another form than the demangled one.
    let is_plain = match shown {
        Some(name) => !name.contains(['<', ':', '(']),
        None => cut.is_none() && !pattern.text().contains('<') && !pattern.has_arguments(),
    };
    if pattern.is_address() || is_plain {
        return BTreeSet::new();
    }
    // Every form contains the function's own name, and the linkage name spells it.
    let own = shown.map(method).unwrap_or_default();
    let word = own
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .max_by_key(|w| w.len());
    let word = word.unwrap_or_default();
    let is_form = |form: &String| match shown {
        Some(shown) => form == shown,
        None => pattern.names(form),
    };
    let is_it = |name: &String| short_forms(name).iter().any(is_form);
    let has_arguments = pattern.has_arguments();
    let written = |linkage: &str| {
        let name = demangle_without_arguments(linkage);
        let whole = || patcher::function::demangle(linkage);
        has_arguments
            .then(whole)
            .into_iter()
            .chain([name])
            .find(is_it)
    };
    let mut found = BTreeSet::new();
    for image in images {
        let linked = image.image().functions().names();
        let linked = linked.filter(|linkage| {
            linkage.starts_with('_') && linkage.contains(word) && pattern.can_name(linkage)
        });
        found.extend(linked.filter_map(written));
    }
    // A name without the suffix of a clone is the function's own.
    if found.iter().any(|name| !is_clone(name)) {
        found.retain(|name| Some(name.as_str()) == shown || !is_clone(name));
    }
    found
}

/// The patterns for the names of the functions that a screen shows as the pattern's text. A text
/// with one form only selects a single function; a glob and a regular expression select all that
/// match. Empty if there is no such function.
pub(super) fn by_shown_name<'i>(
    pattern: &Pattern,
    images: impl Iterator<Item = &'i OpenImage>,
) -> Vec<Pattern> {
    let names = names_shown_as(pattern, images);
    if pattern.name().is_some() && names.len() > 1 {
        return Vec::new();
    }
    names.iter().map(|name| pattern.for_name(name)).collect()
}

/// The shortest form of a long name that no other function in these images shares. `None` for a
/// short name, or if there is none.
pub(super) fn short_name<'i>(
    name: &str,
    images: impl Iterator<Item = &'i OpenImage> + Clone,
) -> Option<String> {
    if name.len() <= LONGEST {
        return None;
    }
    let is_it = |form: &String| {
        let pattern = Pattern::parse(form);
        let names = pattern.map(|pattern| names_shown_as(&pattern, images.clone()));
        names.is_ok_and(|names| names.len() == 1 && names.contains(name))
    };
    let mut forms = short_forms(name).into_iter();
    forms.find(|form| form.len() < name.len() && is_it(form))
}

/// Files in which patterns of commands are looked up, with their names and biases.
#[derive(Default)]
pub struct Places(Vec<(Arc<OpenImage>, String, Bias)>);

impl Places {
    /// The modules of a process.
    pub fn of_modules(modules: &[Module]) -> Self {
        let of_module = |module: &Module| {
            let opened = images::of_module(module).ok()?;
            let bias = module.bias(opened.image())?;
            Some((opened, module.file_name().to_owned(), bias))
        };
        Self(modules.iter().filter_map(of_module).collect())
    }

    /// The code of a file, which need not be mapped by a process. `None` if it cannot be read.
    pub fn of_file(path: &Path) -> Option<Self> {
        let bytes = FileBytes::open(path).ok()?;
        let opened = images::open(&bytes, path).ok()?;
        let name = path.file_name()?.to_string_lossy().into_owned();
        Some(Self(vec![(opened, name, Bias::default())]))
    }

    /// The run-time start addresses of the functions that a pattern names.
    fn starts(&self, text: &str) -> Vec<Avma> {
        let Ok(pattern) = Pattern::parse(text) else {
            return Vec::new();
        };
        let exact = self.selected(&pattern);
        if !exact.is_empty() {
            return exact;
        }
        let images = self.0.iter().map(|(image, ..)| &**image);
        let shown = by_shown_name(&pattern, images);
        shown.iter().flat_map(|p| self.selected(p)).collect()
    }

    /// The run-time start addresses of the functions that a pattern names exactly.
    fn selected(&self, pattern: &Pattern) -> Vec<Avma> {
        let of_file = |(image, name, bias): &(Arc<OpenImage>, String, Bias)| {
            let found = image.select(pattern, name, *bias);
            let starts = found.into_iter().map(|f| bias.to_avma(f.range.start));
            starts.collect::<Vec<_>>()
        };
        self.0.iter().flat_map(of_file).collect()
    }

    /// A pattern that names only the function at `start`, its run-time address. Tries the name
    /// without arguments if it is short, the forms of a screen, and the name with arguments. `None`
    /// if none of them names only this function.
    pub fn pattern_for(&self, linkage: &str, start: Avma) -> Option<String> {
        if linkage.is_empty() {
            return None;
        }
        let name = demangle_without_arguments(linkage);
        let whole = patcher::function::demangle(linkage);
        let forms = short_forms(&name);
        let is_short = |text: &&String| text.len() <= LONGEST;
        let short = [&name].into_iter().chain(&forms).filter(is_short);
        let all = short.chain([&name, &whole]);
        let is_safe =
            |text: &&String| !text.contains(|c: char| c.is_control() || "'\\".contains(c));
        let mut all = all.filter(is_safe);
        all.find(|text| self.starts(text) == [start]).cloned()
    }
}
