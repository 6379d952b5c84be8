//! Calls of a function that bypass it: they reach clones or inlined copies made by the compiler.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::iter::once;
use std::path::Path;
use std::sync::{LazyLock, Mutex, PoisonError};

use patcher::Svma;
use patcher::function::{Function, also_called};
use rustc_hash::FxHashSet;

use crate::segment::{Document, FunctionDoc};
use ipath_symbols::debuginfod;
use ipath_symbols::images::{ImageId, OpenImage};
use ipath_symbols::lines::{Lines, Places};
use ipath_target::progress::Step;

/// The most bytes of DWARF to read for inlined copies while a change waits for them: a second of
/// work.
pub(super) const MOST_DWARF: usize = 128 << 20;

/// The destinations of calls that bypass a function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Elsewhere {
    /// Linkage names of the function's clones, which other code calls instead.
    pub clones: Vec<String>,
    /// The number of inlined copies of the function, if DWARF lists them.
    pub inlined: u64,
}

impl Elsewhere {
    /// Collects the destinations for a function of the image. `inlined` has the number of inlined
    /// copies by name.
    pub(super) fn of(
        image: &OpenImage,
        function: &Function,
        inlined: &HashMap<String, u64>,
    ) -> Self {
        let clones = image.image().functions().clones(function);
        let names: BTreeSet<&String> = names(&function.linkage, &function.aliases).collect();
        let copies = names.into_iter().filter_map(|name| inlined.get(name));
        Self {
            clones: clones.into_iter().map(str::to_owned).collect(),
            inlined: copies.sum(),
        }
    }
}

/// The linkage name, followed by the aliases.
pub(super) fn names<'f>(
    linkage: &'f String,
    aliases: &'f [String],
) -> impl Iterator<Item = &'f String> {
    once(linkage).chain(aliases)
}

/// Counts the inlined copies of functions in the file at `path`, by linkage name. Returns nothing
/// if its DWARF exceeds `most` bytes. Counts only copies of functions with `wanted` names, or with
/// `None` those of all functions.
pub(super) fn inlined_in(
    image: &OpenImage,
    path: &str,
    most: usize,
    wanted: Option<&FxHashSet<&[u8]>>,
) -> HashMap<String, u64> {
    if wanted.is_some_and(FxHashSet::is_empty) {
        return HashMap::new();
    }
    let counted = || {
        let _step = Step::begin(format!("reading the debug information of {path}"));
        let lines = Lines::load(image.image().data(), &Places::for_file(Path::new(path)));
        let is_wanted = |name: &[u8]| wanted.is_none_or(|names| names.contains(name));
        let functions = image.image().functions();
        let name_at = |at: u64| {
            let function = functions.containing(Svma(at))?;
            let name = function.linkage.filter(|_| function.start == Svma(at))?;
            // Copies of a function do not include those of its parts and clones (`f.part.0`).
            (!name.contains('.')).then(|| name.to_owned())
        };
        lines.map_or_else(HashMap::new, |l| l.inlined_copies(most, is_wanted, name_at))
    };
    let Some(wanted) = wanted else {
        return counted();
    };
    // The programs of a job run the same files and lead to the same questions. At most `MOST_ASKED`
    // counts are kept.
    static COUNTED: LazyLock<Mutex<HashMap<Asked, HashMap<String, u64>>>> =
        LazyLock::new(Mutex::default);
    let mut names: Vec<Vec<u8>> = wanted.iter().map(|name| name.to_vec()).collect();
    names.sort_unstable();
    let asked = (image.id(), debuginfod::arrived(), names);
    let mut known = COUNTED.lock().unwrap_or_else(PoisonError::into_inner);
    if known.len() >= MOST_ASKED {
        known.clear();
    }
    known.entry(asked).or_insert_with(counted).clone()
}

/// The key of a count: the file, the number of debug files that have arrived, and the wanted
/// names.
type Asked = (ImageId, u64, Vec<Vec<u8>>);

/// The most counts to keep.
const MOST_ASKED: usize = 1024;

/// The functions among `ids` whose code has other names too: by name, with those names.
pub(super) fn shared(document: &Document, ids: &[usize]) -> Vec<(String, Vec<String>)> {
    let ids: HashSet<&usize> = ids.iter().collect();
    let asked = document.measured().filter(|(id, _)| ids.contains(id));
    let functions = asked.filter(|(_, f)| f.is_in() && f.role.is_measured());
    let each = functions.map(|(_, f)| (f.name.clone(), also_called(&f.linkage, &f.aliases)));
    each.filter(|(_, others)| !others.is_empty()).collect()
}

/// The functions among `ids` with calls that are not counted: by name, with the destinations of
/// those calls.
pub(super) fn partly(document: &Document, ids: &[usize]) -> Vec<(String, Elsewhere)> {
    let active = || {
        let active = document.measured().filter(|(_, f)| f.is_in());
        active.filter(|(_, f)| f.role.is_measured())
    };
    let measured: HashSet<(usize, &String)> = active()
        .flat_map(|(_, f)| names(&f.linkage, &f.aliases).map(|name| (f.module, name)))
        .collect();
    let elsewhere = |f: &FunctionDoc| {
        let clones = f.clones.iter();
        let others = clones.filter(|name| !measured.contains(&(f.module, name)));
        let is_measured = document.measured().any(|(_, row)| {
            let copy = row
                .copy
                .as_ref()
                .filter(|_| row.is_in() && row.module == f.module);
            copy.is_some_and(|copy| names(&f.linkage, &f.aliases).any(|n| *n == copy.linkage))
        });
        Elsewhere {
            clones: others.cloned().collect(),
            inlined: if is_measured { 0 } else { f.inlined },
        }
    };
    let ids: HashSet<&usize> = ids.iter().collect();
    let asked = active().filter(|(id, _)| ids.contains(id));
    let each = asked.map(|(_, f)| (f.name.clone(), elsewhere(f)));
    each.filter(|(_, e)| *e != Elsewhere::default()).collect()
}
