//! Functions by the forms in which screens show their names.

use std::collections::BTreeSet;
use std::path::Path;

use patcher::function::demangle_without_arguments;
use patcher::select::Pattern;
use patcher::{Avma, Bias};

use ipath_base::files::FileBytes;
use ipath_profile::display_name::{is_clone, method, short_forms};
use ipath_symbols::images::{self, OpenImage};
use ipath_target::process::modules::Module;

/// The longest name in a command, in bytes. A longer one is shortened if the short form is unique.
const LONGEST: usize = 60;

/// The demangled names without arguments that a screen shows as the pattern's text. Empty if the pattern is no
/// name or is no such form.
pub(super) fn names_shown_as<'i>(
    pattern: &Pattern,
    images: impl Iterator<Item = &'i OpenImage>,
) -> BTreeSet<String> {
    let shown = pattern.name().filter(|name| name.contains(['<', ':']));
    let Some(shown) = shown else {
        return BTreeSet::new();
    };
    // Every form has the function's own name, and a linkage name spells it.
    let own = method(shown);
    let word = own
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .max_by_key(|w| w.len());
    let word = word.unwrap_or_default();
    let is_it = |name: &String| short_forms(name).iter().any(|form| form == shown);
    let mut found = BTreeSet::new();
    for image in images {
        let linked = image.image.functions().names();
        let linked = linked.filter(|linkage| linkage.starts_with('_') && linkage.contains(word));
        found.extend(linked.map(demangle_without_arguments).filter(is_it));
    }
    // A name without the suffix of a clone is the function's own.
    if found.iter().any(|name| !is_clone(name)) {
        found.retain(|name| name == shown || !is_clone(name));
    }
    found
}

/// The pattern by the name of the only function that a screen shows as its text.
pub(super) fn by_shown_name<'i>(
    pattern: &Pattern,
    images: impl Iterator<Item = &'i OpenImage>,
) -> Option<Pattern> {
    let names = names_shown_as(pattern, images);
    let name = names.first().filter(|_| names.len() == 1)?;
    Some(pattern.for_name(name))
}

/// The shortest form of a long name that a screen shows of no other function in these images.
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

/// Files in which a pattern in a command is looked up, with their names and biases.
#[derive(Default)]
pub struct Places(Vec<(&'static OpenImage, String, Bias)>);

impl Places {
    /// The modules of a process.
    pub fn of_modules(modules: &[Module]) -> Self {
        let of_module = |module: &Module| {
            let opened = images::of_module(module).ok()?;
            let bias = module.bias(opened.image)?;
            Some((opened, module.file_name().to_owned(), bias))
        };
        Self(modules.iter().filter_map(of_module).collect())
    }

    /// A file that no process has to map.
    pub fn of_file(path: &Path) -> Option<Self> {
        let bytes = FileBytes::open(path).ok()?;
        let opened = images::open(&bytes, path).ok()?;
        let name = path.file_name()?.to_string_lossy().into_owned();
        Some(Self(vec![(opened, name, Bias::default())]))
    }

    /// The functions that a pattern names.
    fn starts(&self, text: &str) -> Vec<Avma> {
        let Ok(pattern) = Pattern::parse(text) else {
            return Vec::new();
        };
        let exact = self.selected(&pattern);
        if !exact.is_empty() {
            return exact;
        }
        let images = self.0.iter().map(|(image, ..)| *image);
        let shown = by_shown_name(&pattern, images);
        shown.map_or(exact, |pattern| self.selected(&pattern))
    }

    fn selected(&self, pattern: &Pattern) -> Vec<Avma> {
        let of_file = |(image, name, bias): &(&'static OpenImage, String, Bias)| {
            let found = image.select(pattern, name, *bias);
            let starts = found.into_iter().map(|f| bias.to_avma(f.range.start));
            starts.collect::<Vec<_>>()
        };
        self.0.iter().flat_map(of_file).collect()
    }

    /// The shortest form of a demangled name that names exactly the function that starts at `start`: the name
    /// without arguments if it is not long, a form of a screen, or the name with arguments.
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
