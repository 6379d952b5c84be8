//! Matching patterns to the functions of a process or a file.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use patcher::function::Function;
use patcher::plan::{Allowed, Effects};
use patcher::select::Pattern;
use patcher::{Bias, Svma};

use super::candidate::Candidate;
use super::pointed::Pointed;
use super::shown::by_shown_name;
use super::unmatched::{
    Unmatched, address_in_file, copies_of, is_in_unbounded_code, jit, near, not_mapped,
    other_modules, without_symbols,
};
use crate::segment::Remeasure;
use ipath_base::files::file_name;
use ipath_symbols::debuginfod;
use ipath_symbols::images::{self, OpenImage};
use ipath_target::process::modules::Module;
use ipath_target::progress::Step;

/// The functions and points that patterns name.
pub struct Selection {
    /// The patching techniques that the process allows. The plans use no others.
    pub allowed: Allowed,
    /// Every function matched, in the order of modules and addresses, each once.
    pub candidates: Vec<Candidate>,
    /// The requested points, by function.
    pub points: Vec<Pointed>,
    /// Patterns without a match.
    pub unmatched: Vec<Unmatched>,
    /// Paths of modules that could not be read, with the reason.
    pub unreadable: Vec<(String, String)>,
    /// Number of matching functions, if a session has no room for that many. None is planned then.
    pub unplanned: usize,
    /// The metrics to measure. `None` means those of the session.
    pub remeasure: Option<Remeasure>,
    /// Messages to the user on inlined copies.
    pub remarks: Vec<String>,
}

impl Selection {
    /// These functions, selected without a pattern.
    pub(super) fn of(candidates: Vec<Candidate>, allowed: Allowed) -> Self {
        Self {
            allowed,
            candidates,
            points: Vec::new(),
            unmatched: Vec::new(),
            unreadable: Vec::new(),
            unplanned: 0,
            remeasure: None,
            remarks: Vec::new(),
        }
    }

    /// Returns the texts of the `patterns` that have a match. The selection must have been made
    /// from them.
    pub(super) fn met(&self, patterns: &[Pattern]) -> Vec<String> {
        let texts: Vec<String> = patterns.iter().map(|p| p.text().to_owned()).collect();
        self.met_texts(&texts)
    }

    /// Returns the texts of `patterns` that have a match.
    pub(super) fn met_texts(&self, patterns: &[String]) -> Vec<String> {
        let met = patterns.iter().filter(|text| self.is_met(text));
        met.cloned().collect()
    }

    /// True if the pattern or place has a match. The selection must have been made from it.
    pub fn is_met(&self, text: &str) -> bool {
        self.unmatched.iter().all(|u| u.pattern != text)
    }

    /// Number of functions and points.
    pub fn count(&self) -> usize {
        let points = self.points.iter().flat_map(Pointed::points);
        self.candidates.len() + self.unplanned + points.count()
    }
}

/// The parameters of a search.
#[derive(Clone, Copy)]
pub struct Query<'p> {
    /// The patterns. Empty means all functions.
    pub patterns: &'p [Pattern],
    /// The parts to patch of each function.
    pub want: Effects,
    /// The patching techniques that the process allows.
    pub allowed: Allowed,
    /// True to include parts of functions, and to count inlined copies however long that takes.
    pub in_full: bool,
    /// True to suggest no names for patterns without a match. Finding suggestions takes long.
    pub is_quick: bool,
    /// The most functions to plan in a process. If more named functions match, they are only
    /// counted.
    pub most: usize,
}

/// Patterns and modules for which a search has no result.
#[derive(Default)]
pub struct Missed {
    /// Patterns without a match.
    pub unmatched: Vec<Unmatched>,
    /// Paths of modules that could not be read, with the reason.
    pub unreadable: Vec<(String, String)>,
    /// Number of matching functions that were not planned because they exceed [`Query::most`].
    pub unplanned: usize,
}

/// Looks patterns up in the modules of a process and plans the functions they name. Without
/// patterns, selects nothing. A pattern without a module is looked up in all of them. If
/// `is_quick`, suggests no names for patterns without a match: finding suggestions takes long.
pub fn select(
    modules: &[Module],
    patterns: &[Pattern],
    want: Effects,
    allowed: Allowed,
    is_quick: bool,
) -> Selection {
    let query = &Query {
        patterns,
        want,
        allowed,
        in_full: false,
        is_quick,
        most: abi::MOST_FUNCTIONS,
    };
    let mut candidates = Vec::new();
    let missed = if patterns.is_empty() {
        Missed::default()
    } else {
        select_in_modules(modules, query, |c| candidates.push(c))
    };
    Selection {
        allowed,
        candidates,
        points: Vec::new(),
        unmatched: missed.unmatched,
        unreadable: missed.unreadable,
        unplanned: missed.unplanned,
        remeasure: None,
        remarks: Vec::new(),
    }
}

/// Looks up a query in the modules of a process. Passes each function to `take` once, in the order
/// of modules and addresses.
pub fn select_in_modules(
    modules: &[Module],
    query: &Query<'_>,
    mut take: impl FnMut(Candidate),
) -> Missed {
    let mut taken = HashSet::new();
    let mut take = |candidate: Candidate| {
        if taken.insert(candidate.place()) {
            take(candidate);
        }
    };
    let mut places = Vec::new();
    let mut matched = vec![false; query.patterns.len()];
    let mut unreadable = Vec::new();
    // Planning takes longest, so all functions are counted before the first is planned.
    let mut waiting = Vec::new();
    let mut count = 0;
    let step = Step::begin("looking up functions");
    for (index, module) in modules.iter().enumerate() {
        step.at(index + 1, modules.len());
        let is_meant = |p: &Pattern| is_meant(p, module.file_name(), Some(module));
        if !query.patterns.is_empty() && !query.patterns.iter().any(is_meant) {
            continue;
        }
        match SearchedFile::of_module(index, module) {
            Ok(place) => {
                let _step = Step::begin(format!("analysing {}", module.path));
                let functions = place.functions(query, &mut matched);
                match query.most {
                    usize::MAX => place.plan_all(query, functions, &mut take),
                    most => {
                        let named = functions.iter().filter(|(f, _)| !f.linkage.is_empty());
                        count += named.count();
                        waiting.push((places.len(), functions));
                        if count > most {
                            waiting.clear();
                        }
                    }
                }
                places.push(place);
            }
            Err(cause) => unreadable.push((module.path.clone(), cause)),
        }
    }
    if count > query.most {
        return Missed {
            unplanned: count,
            unreadable,
            ..Missed::default()
        };
    }
    for (index, functions) in waiting {
        places[index].plan_all(query, functions, &mut take);
    }
    for index in with_fetched_symbols(&mut places, query, &matched) {
        places[index].select(query, &mut matched, &mut take);
    }
    select_shown(&places, query, &mut matched, &mut take);
    Missed {
        unmatched: unmatched(query, &matched, modules, &places),
        unreadable,
        unplanned: 0,
    }
}

/// Looks up a query in the file at `path`. Passes each function to `take` once, and returns the
/// patterns without a match.
pub fn select_in_file(
    image: Arc<OpenImage>,
    path: &str,
    query: &Query<'_>,
    mut take: impl FnMut(Candidate),
) -> Vec<Unmatched> {
    let mut taken = HashSet::new();
    let mut take = |candidate: Candidate| {
        if taken.insert(candidate.place()) {
            take(candidate);
        }
    };
    let mut places = [SearchedFile {
        index: 0,
        path,
        module: None,
        image,
        bias: Bias::default(),
    }];
    let mut matched = vec![false; query.patterns.len()];
    let _step = Step::begin(format!("analysing {path}"));
    places[0].select(query, &mut matched, &mut take);
    for index in with_fetched_symbols(&mut places, query, &matched) {
        places[index].select(query, &mut matched, &mut take);
    }
    select_shown(&places, query, &mut matched, &mut take);
    unmatched(query, &matched, &[], &places)
}

/// Matches the remaining patterns against the forms in which screens show names.
fn select_shown(
    places: &[SearchedFile<'_>],
    query: &Query<'_>,
    matched: &mut [bool],
    take: &mut impl FnMut(Candidate),
) {
    for (pattern, matched) in query.patterns.iter().zip(matched) {
        let meant = places.iter().filter(|place| place.is_meant(pattern));
        if *matched {
            continue;
        }
        let found = by_shown_name(pattern, meant.clone().map(|place| &*place.image));
        for found in &found {
            let patterns = std::slice::from_ref(found);
            let query = Query { patterns, ..*query };
            for place in meant.clone() {
                place.select(&query, std::slice::from_mut(matched), take);
            }
        }
    }
}

/// Fetches debug files that may contain the functions not found yet. Only the module that a pattern
/// names is considered, or the program if it names none. Returns the indexes of the places whose
/// debug file has arrived.
fn with_fetched_symbols(
    places: &mut [SearchedFile<'_>],
    query: &Query<'_>,
    matched: &[bool],
) -> Vec<usize> {
    if !debuginfod::is_on() {
        return Vec::new();
    }
    let unmatched = query.patterns.iter().zip(matched);
    let unmatched = unmatched.filter(|(p, matched)| !**matched && !p.is_address());
    let unmatched: Vec<&Pattern> = unmatched.map(|(pattern, _)| pattern).collect();
    let is_wanted = |place: &SearchedFile<'_>| {
        let is_named = |p: &&Pattern| place.is_named(p);
        place.image.lacks_symbols() && unmatched.iter().any(is_named)
    };
    let wanted: Vec<usize> = (0..places.len())
        .filter(|&i| is_wanted(&places[i]))
        .collect();
    for place in wanted.iter().map(|&index| &places[index]) {
        place.image.want_debug_file(place.path.as_ref());
    }
    debuginfod::wait(|| false);
    let mut renewed = wanted;
    renewed.retain(|&index| places[index].renew());
    renewed
}

/// A file that is searched for functions, on its own or as a module of a process.
pub(super) struct SearchedFile<'m> {
    /// Index of the module in the list that is searched; 0 for a file.
    pub(super) index: usize,
    pub(super) path: &'m str,
    /// The module. `None` for a file that is searched on its own.
    pub(super) module: Option<&'m Module>,
    pub(super) image: Arc<OpenImage>,
    pub(super) bias: Bias,
}

impl<'m> SearchedFile<'m> {
    /// The file of a module. The error is the reason why it cannot be read.
    fn of_module(index: usize, module: &'m Module) -> Result<Self, String> {
        let image = images::of_module(module).map_err(|e| e.to_string())?;
        let bias = module.bias(image.image());
        Ok(Self {
            index,
            path: &module.path,
            module: Some(module),
            image,
            bias: bias.ok_or("the segments of the file do not match its mappings")?,
        })
    }

    /// True for the program of the process, and for a file without a process.
    fn is_program(&self) -> bool {
        let exe = self.module.map(|module| module.process().exe());
        exe.is_none_or(|exe| exe.is_some_and(|exe| exe.as_os_str() == self.path))
    }

    /// Switches to a debug file that has arrived since the file was opened. True if the file has
    /// symbols now.
    fn renew(&mut self) -> bool {
        self.image = images::renewed(&self.image, self.path.as_ref());
        !self.image.lacks_symbols()
    }

    fn file_name(&self) -> &'m str {
        file_name(self.path)
    }

    /// The name that users see.
    pub(super) fn shown_name(&self) -> String {
        let file_name = || self.file_name().to_owned();
        self.module.map_or_else(file_name, Module::shown_name)
    }

    /// True if the pattern can match functions of this file.
    fn is_meant(&self, pattern: &Pattern) -> bool {
        is_meant(pattern, self.file_name(), self.module)
    }

    /// True if a pattern names this module, or names none and this is the program.
    fn is_named(&self, pattern: &Pattern) -> bool {
        self.is_meant(pattern) && (pattern.has_module() || self.is_program())
    }

    /// Plans the functions that the query names here, and notes which patterns have a match.
    fn select(&self, query: &Query<'_>, matched: &mut [bool], take: &mut impl FnMut(Candidate)) {
        self.plan_all(query, self.functions(query, matched), take);
    }

    /// The functions that the query names, by address. The flag is true if a pattern names the
    /// function by address.
    fn functions(&self, query: &Query<'_>, matched: &mut [bool]) -> Vec<(Function, bool)> {
        let is_there = |f: &Function| self.module.is_none_or(|m| m.maps_function(self.bias, f));
        if query.patterns.is_empty() {
            let all = self.image.image().functions().iter().filter(is_there);
            return all.map(|f| (f, false)).collect();
        }
        let mut found: BTreeMap<Svma, (Function, bool)> = BTreeMap::new();
        let patterns = query.patterns.iter().zip(matched);
        for (pattern, matched) in patterns.filter(|(p, _)| self.is_meant(p)) {
            let here = self.image.select(pattern, self.file_name(), self.bias);
            for function in here.into_iter().filter(is_there) {
                *matched = true;
                let known = found.entry(function.range.start);
                let (_, is_by_address) = known.or_insert((function, false));
                *is_by_address |= pattern.is_address();
            }
        }
        found.into_values().collect()
    }
}

/// True if the pattern can match functions of this file. In a process, `module` is that file.
pub(super) fn is_meant(pattern: &Pattern, file_name: &str, module: Option<&Module>) -> bool {
    match (module, pattern.absolute_address()) {
        (Some(module), Some(at)) => module.code.iter().any(|m| m.contains(at)),
        (Some(module), None) if pattern.has_module() => {
            module.is_called(|name| pattern.module_matches(name))
        }
        _ => pattern.module_matches(file_name),
    }
}

/// Returns the patterns without a match in these places. `modules` are those of the process.
fn unmatched(
    query: &Query<'_>,
    matched: &[bool],
    modules: &[Module],
    places: &[SearchedFile<'_>],
) -> Vec<Unmatched> {
    let of_pattern = |pattern: &Pattern| {
        let meant = places.iter().filter(|place| place.is_meant(pattern));
        let named = places.iter().filter(|place| place.is_named(pattern));
        let named = named.map(|place| (&*place.image, place.file_name()));
        let of_modules = meant.clone().filter(|place| place.module.is_some());
        let of_modules = of_modules.map(|place| (&*place.image, place.file_name()));
        let images = meant.clone().map(|place| (&*place.image, place.bias));
        let is_in_unbounded_code = is_in_unbounded_code(pattern, images);
        let copies = meant.map(|place| copies_of(pattern, &place.inlined(query, None)));
        Unmatched {
            pattern: pattern.text().to_owned(),
            near: near(pattern, modules, places.iter().map(|place| &*place.image)),
            inlined: copies.sum(),
            jit: jit(pattern, modules),
            is_in_unbounded_code,
            why: without_symbols(pattern, named)
                .or_else(|| address_in_file(pattern, modules))
                .or_else(|| not_mapped(pattern, of_modules)),
            modules: other_modules(pattern, modules),
            may_come: !modules.is_empty() && !pattern.is_address(),
        }
    };
    let patterns = query.patterns.iter().zip(matched);
    let unmatched = patterns.filter(|(_, matched)| !**matched);
    let unmatched = unmatched.map(|(pattern, _)| {
        if query.is_quick {
            Unmatched::only(pattern)
        } else {
            of_pattern(pattern)
        }
    });
    unmatched.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ipath_target::process::modules::modules;
    use ipath_target::process::{Pid, Process, Space};

    /// Uses functions of the C library in this process.
    #[test]
    fn more_functions_than_there_is_room_for_are_counted_and_not_planned() {
        let process = Process::find(Pid(std::process::id() as i32)).expect("this process");
        let space = Space::open(&process).expect("its memory");
        let modules = modules(&process, &space.maps().expect("its maps"));
        let names = ["getpid", "getppid", "getuid"];
        let parse = |name| Pattern::parse(&format!("libc.so*!{name}")).expect("a pattern");
        let patterns = names.map(parse);
        for (most, planned, unplanned) in [(2, 0, 3), (3, 3, 0), (usize::MAX, 3, 0)] {
            let query = Query {
                patterns: &patterns,
                want: Effects {
                    entry: true,
                    exits: false,
                },
                allowed: Allowed::ALL,
                in_full: false,
                is_quick: true,
                most,
            };
            let mut taken = 0;
            let missed = select_in_modules(&modules, &query, |_| taken += 1);
            assert_eq!((taken, missed.unplanned), (planned, unplanned), "{most}");
        }
    }
}
