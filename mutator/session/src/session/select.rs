//! Which functions of a process or a file patterns name.

use std::collections::{BTreeMap, HashSet};

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

/// What patterns name.
pub struct Selection {
    /// What the process allows, for which it was planned.
    pub allowed: Allowed,
    /// Every function matched, in the order of modules and addresses, each once.
    pub candidates: Vec<Candidate>,
    /// The points asked for, by function.
    pub points: Vec<Pointed>,
    /// Patterns without a match.
    pub unmatched: Vec<Unmatched>,
    /// Modules that could not be read, with the reason.
    pub unreadable: Vec<(String, String)>,
    /// Functions matched, if they are more than a session has room for. None is planned then.
    pub unplanned: usize,
    /// What is to be measured of them: as the session does where nothing else is said.
    pub remeasure: Option<Remeasure>,
}

impl Selection {
    /// Those of the patterns that it was made by which have named something.
    pub(super) fn met(&self, patterns: &[Pattern]) -> Vec<String> {
        let texts: Vec<String> = patterns.iter().map(|p| p.text().to_owned()).collect();
        self.met_texts(&texts)
    }

    /// The same by their texts.
    pub(super) fn met_texts(&self, patterns: &[String]) -> Vec<String> {
        let met = patterns.iter().filter(|text| self.is_met(text));
        met.cloned().collect()
    }

    /// True if a pattern or place that it was made by has named something.
    pub fn is_met(&self, text: &str) -> bool {
        self.unmatched.iter().all(|u| u.pattern != text)
    }

    /// How many functions and points there are.
    pub fn count(&self) -> usize {
        let points = self.points.iter().flat_map(Pointed::points);
        self.candidates.len() + self.unplanned + points.count()
    }
}

/// What is looked for.
#[derive(Clone, Copy)]
pub struct Query<'p> {
    /// The functions; without a pattern, all.
    pub patterns: &'p [Pattern],
    /// What is to be patched of each.
    pub want: Effects,
    /// What the process allows.
    pub allowed: Allowed,
    /// True where parts of functions are wanted too, and inlined copies however long it takes to count them.
    pub in_full: bool,
    /// True where it does not matter what may have been meant by what has no match.
    pub is_quick: bool,
    /// The most functions to plan in a process. If more match that have a name, they are only counted.
    pub most: usize,
}

/// What was looked for in vain.
#[derive(Default)]
pub struct Missed {
    /// Patterns without a match.
    pub unmatched: Vec<Unmatched>,
    /// Modules that could not be read, with the reason.
    pub unreadable: Vec<(String, String)>,
    /// Functions that were matched and not planned, because there are more than [`Query::most`].
    pub unplanned: usize,
}

/// Looks the patterns up in the modules of a process and plans what they name, nothing where there are none. A pattern
/// without a module is looked up in all of them. Where it `is_quick`, without what may have been meant by what has no match.
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
    }
}

/// Gives what the query names in the modules of a process to `take`, in the order of modules and addresses,
/// each function once.
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
    // Planning takes longest. All functions are counted before the first is planned.
    let mut waiting = Vec::new();
    let mut count = 0;
    let step = Step::begin("looking up functions");
    for (index, module) in modules.iter().enumerate() {
        step.at(index + 1, modules.len());
        let is_meant = |p: &Pattern| is_meant(p, module.file_name(), Some(module));
        if !query.patterns.is_empty() && !query.patterns.iter().any(is_meant) {
            continue;
        }
        match Place::of_module(index, module) {
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

/// The same in the file at `path`; the patterns without a match.
pub fn select_in_file(
    image: &'static OpenImage,
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
    let mut places = [Place {
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

/// Selects by the forms in which screens show names, for patterns without another match.
fn select_shown(
    places: &[Place<'_>],
    query: &Query<'_>,
    matched: &mut [bool],
    take: &mut impl FnMut(Candidate),
) {
    for (pattern, matched) in query.patterns.iter().zip(matched) {
        let meant = places.iter().filter(|place| place.is_meant(pattern));
        let found = if *matched {
            None
        } else {
            by_shown_name(pattern, meant.clone().map(|place| place.image))
        };
        let Some(found) = found else { continue };
        let patterns = std::slice::from_ref(&found);
        let query = Query { patterns, ..*query };
        for place in meant {
            place.select(&query, std::slice::from_mut(matched), take);
        }
    }
}

/// Has the debug files fetched of what may have a function that is not found: of what a pattern names as its module, else of the
/// program. Those that have come, by index.
fn with_fetched_symbols(
    places: &mut [Place<'_>],
    query: &Query<'_>,
    matched: &[bool],
) -> Vec<usize> {
    if !debuginfod::is_on() {
        return Vec::new();
    }
    let unmatched = query.patterns.iter().zip(matched);
    let unmatched = unmatched.filter(|(p, matched)| !**matched && !p.is_address());
    let unmatched: Vec<&Pattern> = unmatched.map(|(pattern, _)| pattern).collect();
    let is_wanted = |place: &Place<'_>| {
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

/// A file in which functions are looked for, on its own or as a module of a process.
pub(super) struct Place<'m> {
    pub(super) index: usize,
    pub(super) path: &'m str,
    pub(super) module: Option<&'m Module>,
    pub(super) image: &'static OpenImage,
    pub(super) bias: Bias,
}

impl<'m> Place<'m> {
    fn of_module(index: usize, module: &'m Module) -> Result<Self, String> {
        let image = images::of_module(module).map_err(|e| e.to_string())?;
        let bias = module.bias(image.image);
        Ok(Self {
            index,
            path: &module.path,
            module: Some(module),
            image,
            bias: bias.ok_or("the file's segments are not where it is mapped")?,
        })
    }

    /// True for the program of the process, and for a file.
    fn is_program(&self) -> bool {
        let exe = self.module.map(|module| module.process().exe());
        exe.is_none_or(|exe| exe.is_some_and(|exe| exe.as_os_str() == self.path))
    }

    /// True if a debug file with its symbols has come since it was opened; it has them then.
    fn renew(&mut self) -> bool {
        self.image = images::renewed(self.image, self.path.as_ref());
        !self.image.lacks_symbols()
    }

    fn file_name(&self) -> &'m str {
        file_name(self.path)
    }

    /// What a user calls it.
    pub(super) fn shown_name(&self) -> String {
        let file_name = || self.file_name().to_owned();
        self.module.map_or_else(file_name, Module::shown_name)
    }

    fn is_meant(&self, pattern: &Pattern) -> bool {
        is_meant(pattern, self.file_name(), self.module)
    }

    /// True if a pattern means this module by name, or means none and this is the program.
    fn is_named(&self, pattern: &Pattern) -> bool {
        self.is_meant(pattern) && (pattern.has_module() || self.is_program())
    }

    /// Plans what the query names here, and notes which patterns have a match.
    fn select(&self, query: &Query<'_>, matched: &mut [bool], take: &mut impl FnMut(Candidate)) {
        self.plan_all(query, self.functions(query, matched), take);
    }

    /// The functions that are meant, by address, with whether an address in a pattern means them.
    fn functions(&self, query: &Query<'_>, matched: &mut [bool]) -> Vec<(Function, bool)> {
        let is_there = |f: &Function| self.module.is_none_or(|m| m.maps_function(self.bias, f));
        if query.patterns.is_empty() {
            let all = self.image.image.functions().iter().filter(is_there);
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

/// True if functions of this file are meant, which in a process is that module.
pub(super) fn is_meant(pattern: &Pattern, file_name: &str, module: Option<&Module>) -> bool {
    match (module, pattern.absolute_address()) {
        (Some(module), Some(at)) => module.code.iter().any(|m| m.contains(at)),
        (Some(module), None) if pattern.has_module() => {
            module.is_called(|name| pattern.module_matches(name))
        }
        _ => pattern.module_matches(file_name),
    }
}

/// The patterns without a match in these places of a process with these modules.
fn unmatched(
    query: &Query<'_>,
    matched: &[bool],
    modules: &[Module],
    places: &[Place<'_>],
) -> Vec<Unmatched> {
    let of_pattern = |pattern: &Pattern| {
        let meant = places.iter().filter(|place| place.is_meant(pattern));
        let named = places.iter().filter(|place| place.is_named(pattern));
        let named = named.map(|place| (place.image, place.file_name()));
        let of_modules = meant.clone().filter(|place| place.module.is_some());
        let of_modules = of_modules.map(|place| (place.image, place.file_name()));
        let images = meant.clone().map(|place| (place.image, place.bias));
        let is_in_unbounded_code = is_in_unbounded_code(pattern, images);
        let copies = meant.map(|place| copies_of(pattern, &place.inlined(query, None)));
        Unmatched {
            pattern: pattern.text().to_owned(),
            near: near(pattern, modules, places.iter().map(|place| place.image)),
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

    /// Functions of the C library, in this process.
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
