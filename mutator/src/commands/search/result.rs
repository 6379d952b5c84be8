//! The result of a search as stored in a profile.

use std::collections::HashMap;

use patcher::Avma;

use super::common::Shifts;
use super::look::Places;
use super::words::reason;
use ipath_profile::{Explained, FoundPath, Left, Profile, SearchResult};
use ipath_sampling::search::{Cost, Dropped, Row, Search, Stack, Window};

/// The result of a step.
pub(super) struct Outcome {
    /// The measurements of the step.
    pub(super) window: Window,
    /// The costly paths.
    pub(super) rows: Vec<Row>,
    /// The share that all measured calls explain.
    pub(super) explained: Cost,
    /// The number of steps up to this one.
    pub(super) steps: u64,
    /// The functions that may be costly and are not among the rows.
    pub(super) left: Vec<Left>,
}

/// The indices of functions and frames in a profile by their common addresses.
pub(super) struct Numbers {
    functions: HashMap<Avma, usize>,
    frames: HashMap<Avma, usize>,
}

impl Numbers {
    /// The indices in the profile of one process.
    pub(super) fn of_one(profile: &Profile) -> Self {
        let places = Places::of(profile);
        let numbered = |places: Vec<Avma>| places.into_iter().zip(0..).collect();
        Self {
            functions: numbered(places.functions()),
            frames: numbered(places.frames()),
        }
    }

    /// The indices in the sum of the profiles of several processes.
    pub(super) fn of_sum(sum: &Profile, parts: &[(&Shifts, Profile)]) -> Self {
        let functions = sum.functions.iter().map(|f| (Some(f.module), f.address));
        let functions = by_code(sum, functions);
        let frames = by_code(sum, sum.frames.iter().map(|f| (f.module, f.address)));
        let mut numbers = Self {
            functions: HashMap::new(),
            frames: HashMap::new(),
        };
        for (shifts, part) in parts {
            let places = Places::of(part);
            let of_part = part.functions.iter().map(|f| (Some(f.module), f.address));
            for ((module, address), at) in of_part.zip(places.functions()) {
                if let Some(&number) = functions.get(&(file(part, module), address)) {
                    numbers.functions.insert(shifts.to_common(at), number);
                }
            }
            let of_part = part.frames.iter().map(|f| (f.module, f.address));
            for ((module, address), at) in of_part.zip(places.frames()) {
                if let Some(&number) = frames.get(&(file(part, module), address)) {
                    numbers.frames.insert(shifts.to_common(at), number);
                }
            }
        }
        numbers
    }
}

/// Indices by file and address in it.
fn by_code(
    profile: &Profile,
    code: impl Iterator<Item = (Option<usize>, u64)>,
) -> HashMap<(&str, u64), usize> {
    let numbered = code.enumerate();
    let entry = |(number, (module, address))| ((file(profile, module), address), number);
    numbered.map(entry).collect()
}

/// The key of a file when profiles are merged.
fn file(profile: &Profile, module: Option<usize>) -> &str {
    let module = module.and_then(|module| profile.modules.get(module));
    module.map_or("", |m| m.build_id.as_deref().unwrap_or(&m.path))
}

impl Outcome {
    /// The result in the form of a profile with these indices.
    pub(super) fn found(&self, numbers: &Numbers) -> SearchResult {
        let Numbers { functions, frames } = numbers;
        let path = |row: &Row| {
            let sites = row.callers.iter();
            let stack: Vec<usize> = sites
                .map_while(|site| frames.get(&site.at).copied())
                .collect();
            Some(FoundPath {
                function: *functions.get(&row.function)?,
                complete: row.is_whole && stack.len() == row.callers.len(),
                stack,
                paths: row.paths as u64,
                calls: row.calls,
                cpu_ns: row.cost.cpu as u64,
                waiting_ns: row.cost.off as u64,
                cpu_share: row.share.cpu,
                waiting_share: row.share.off,
                idle: row.is_idle,
            })
        };
        SearchResult {
            ns: self.window.ns,
            cpu_ns: self.window.whole.cpu as u64,
            waiting_ns: self.window.whole.off as u64,
            overhead: self.window.overhead,
            steps: self.steps,
            explained: Some(Explained {
                cpu: self.explained.cpu,
                waiting: self.explained.off,
            }),
            paths: self.rows.iter().filter_map(path).collect(),
            left: self.left.clone(),
        }
    }
}

/// The number of functions that were dropped because of their overhead.
pub(super) fn costly(search: &Search) -> usize {
    let dropped = search.dropped().values();
    dropped
        .filter(|why| matches!(why, Dropped::Costly { .. }))
        .count()
}

/// The number of functions that were dropped because no call of them returned.
pub(super) fn unreturned(search: &Search) -> usize {
    let dropped = search.dropped().values();
    dropped
        .filter(|why| matches!(why, Dropped::Unreturned))
        .count()
}

/// Functions outside `found` that may be costly: sampled ones, and ones dropped as costly or
/// refused. At most 16. `name` gives the names of a function and of its module.
pub(super) fn left(
    search: &Search,
    sampled: &[Stack],
    found: &[Avma],
    mut name: impl FnMut(Avma) -> (String, String),
) -> Vec<Left> {
    /// The most functions to list.
    const MAX_FUNCTIONS: usize = 16;
    let mut all: Vec<(Avma, Cost)> = search.left(sampled);
    let is_told = |why: &Dropped| matches!(why, Dropped::Costly { .. } | Dropped::Refused(_));
    let given_up = search.dropped().iter().filter(|(_, why)| is_told(why));
    for (function, _) in given_up {
        if !all.iter().any(|(known, _)| known == function) {
            all.push((*function, Cost::default()));
        }
    }
    all.retain(|(function, _)| !found.contains(function));
    all.truncate(MAX_FUNCTIONS);
    let left = all.into_iter().map(|(function, share)| {
        let (name, file) = name(function);
        Left {
            name,
            file,
            reason: search
                .dropped()
                .get(&function)
                .map(reason)
                .unwrap_or_default(),
            cpu_share: share.cpu,
            waiting_share: share.off,
        }
    });
    left.collect()
}
