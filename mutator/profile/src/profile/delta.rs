//! The changes between two profiles of one session.

use super::{Apart, FramePart, FunctionPart, PathEntry, Profile};
use std::collections::HashMap;

/// Matches the functions and paths of a newer profile with those of an older one.
///
/// The lists may have grown or been renumbered in between, so the match is by content. Functions
/// match by module (its path and base), address and part.
/// Paths match by function, call sites, completeness, thread and process.
#[derive(Clone, Debug)]
pub struct Delta {
    /// For each new function, its index in the old profile.
    functions: Vec<Option<usize>>,
    /// For each new path, its index in the old profile.
    paths: Vec<Option<usize>>,
    elapsed_ns: u64,
}

/// A module (its path and base) and an address in it.
type Place<'p> = (Option<(&'p str, Option<u64>)>, u64);
/// The place of a frame, and its meaning.
type Site<'p> = (Option<(&'p str, Option<u64>)>, u64, FramePart);

impl Delta {
    /// Matches `new` against `old`. Both must have passed [`Profile::check_structure`].
    pub fn between(old: &Profile, new: &Profile) -> Self {
        let old_functions: HashMap<_, _> = function_sites(old)
            .into_iter()
            .enumerate()
            .map(|(i, site)| (site, i))
            .collect();
        let functions: Vec<_> = function_sites(new)
            .iter()
            .map(|site| old_functions.get(site).copied())
            .collect();

        let (old_sites, new_sites) = (sites(old), sites(new));
        let same = |a: &PathEntry, b: &PathEntry| {
            functions[b.function] == Some(a.function)
                && old.process_key(a) == new.process_key(b)
                && (a.thread, a.complete, a.stack.len()) == (b.thread, b.complete, b.stack.len())
                && (a.phase, &a.by, a.slower) == (b.phase, &b.by, b.slower)
                && a.stack
                    .iter()
                    .zip(&b.stack)
                    .all(|(&a, &b)| old_sites[a] == new_sites[b])
        };
        // Built only when a path has moved. Usually paths are only appended.
        let mut elsewhere: Option<HashMap<PathKey<'_>, usize>> = None;
        let mut find = |path: &PathEntry| {
            elsewhere
                .get_or_insert_with(|| {
                    let keyed = old.paths.iter().enumerate();
                    keyed
                        .map(|(i, p)| (key(p.function, old, p, &old_sites), i))
                        .collect()
                })
                .get(&key(functions[path.function]?, new, path, &new_sites))
                .copied()
        };
        let paths = new
            .paths
            .iter()
            .enumerate()
            .map(|(i, path)| match old.paths.get(i) {
                Some(was) if same(was, path) => Some(i),
                _ => find(path),
            })
            .collect();
        let elapsed_ns = new
            .session
            .elapsed_ns
            .saturating_sub(old.session.elapsed_ns);
        Self {
            functions,
            paths,
            elapsed_ns,
        }
    }

    /// The index in the old profile of the function that is at `new` in the new one. `None` if it
    /// is a new function.
    pub fn function(&self, new: usize) -> Option<usize> {
        self.functions.get(new).copied().flatten()
    }

    /// The index in the old profile of the path that is at `new` in the new one. `None` if it is a
    /// new path.
    pub fn path(&self, new: usize) -> Option<usize> {
        self.paths.get(new).copied().flatten()
    }

    /// The time from the old to the new profile, in nanoseconds. 0 if the new one is not later.
    pub fn elapsed_ns(&self) -> u64 {
        self.elapsed_ns
    }
}

/// A path's function (its index in the old profile), thread, process, completeness, call sites, and
/// what keeps it apart else.
type PathKey<'p> = (
    usize,
    Option<u32>,
    Option<(u32, u64)>,
    bool,
    Vec<Site<'p>>,
    Apart,
);

fn key<'p>(
    function: usize,
    profile: &Profile,
    path: &PathEntry,
    sites: &[Site<'p>],
) -> PathKey<'p> {
    (
        function,
        path.thread,
        profile.process_key(path),
        path.complete,
        path.stack.iter().map(|&f| sites[f]).collect(),
        path.apart(),
    )
}

fn sites(profile: &Profile) -> Vec<Site<'_>> {
    let site = |f: &super::Frame| (f.module.map(|m| module(profile, m)), f.address, f.part());
    profile.frames.iter().map(site).collect()
}

/// The place of each function, and its part.
fn function_sites(profile: &Profile) -> Vec<(Place<'_>, FunctionPart)> {
    let site = |f: &super::Function| ((Some(module(profile, f.module)), f.address), f.part());
    profile.functions.iter().map(site).collect()
}

fn module(profile: &Profile, index: usize) -> (&str, Option<u64>) {
    let module = &profile.modules[index];
    (&module.path, module.base)
}

#[cfg(test)]
mod tests {
    use super::super::PathEntry;
    use super::Delta;
    use crate::sample::sample;

    #[test]
    fn paths_are_found_again_where_they_stayed_and_where_they_moved() {
        let old = sample();
        let mut new = old.clone();
        new.session.elapsed_ns += 1_000_000_000;
        let delta = Delta::between(&old, &new);
        assert_eq!(
            (0..4).map(|p| delta.path(p)).collect::<Vec<_>>(),
            [Some(0), Some(1), Some(2), Some(3)]
        );
        assert_eq!(delta.elapsed_ns(), 1_000_000_000);

        new.functions.swap(0, 1);
        new.frames.swap(0, 3);
        new.paths.reverse();
        for path in &mut new.paths {
            path.function = 1 - path.function;
            for frame in &mut path.stack {
                *frame = match *frame {
                    0 => 3,
                    3 => 0,
                    other => other,
                };
            }
        }
        new.paths.push(PathEntry {
            stack: vec![1],
            ..new.paths[0].clone()
        });
        let delta = Delta::between(&old, &new);
        assert_eq!(
            (0..5).map(|p| delta.path(p)).collect::<Vec<_>>(),
            [Some(3), Some(2), Some(1), Some(0), None]
        );
        assert_eq!((delta.function(0), delta.function(1)), (Some(1), Some(0)));
    }
}
