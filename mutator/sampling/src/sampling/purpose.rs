//! Separates waiting for work from other waiting: for a lock, a file, an answer.
//!
//! The names of some functions give the kind of a wait ([`super::role`]). Waits on a condition
//! variable or a semaphore are ambiguous. They end when another thread acts, so a long wait has its
//! cause there. Such a wait is for work if it is in the outermost loop of the thread: in the outer
//! frames that all its other paths share, or in one further function that takes from a queue. A
//! thread that waits deeper already has work. A sleep is for work if the thread's first function
//! makes it: it paces the thread.

use std::collections::HashSet;

use super::code::FunctionId;
use super::paths::{PathId, Paths};
use super::role::Role;
use super::thread::ThreadTime;

/// The outer functions that all of these paths share, the outermost last. `None` without a path.
fn common<'p>(paths: impl IntoIterator<Item = &'p [FunctionId]>) -> Option<&'p [FunctionId]> {
    paths.into_iter().reduce(|a, b| {
        let same = a.iter().rev().zip(b.iter().rev());
        let count = same.take_while(|(a, b)| a == b).count();
        &a[a.len() - count..]
    })
}

/// True if the wait at `path` is in the outermost loop of its thread. `loops` are the outer frames
/// that the other paths of the thread share. `counts` is true for functions of the program that are
/// not the wait itself.
fn is_in_loop(
    path: &[FunctionId],
    loops: Option<&[FunctionId]>,
    counts: impl Fn(FunctionId) -> bool,
) -> bool {
    let Some(loops) = loops else { return true };
    let shared = common([path, loops]).map_or(0, <[_]>::len);
    let inside = &path[..path.len() - shared];
    shared > 0 && inside.iter().filter(|&&f| counts(f)).count() <= 1
}

/// Finds the paths at which threads wait for work.
pub(super) struct Purposes<'c> {
    paths: &'c Paths,
}

impl<'c> Purposes<'c> {
    pub(super) fn of(paths: &'c Paths) -> Self {
        Self { paths }
    }

    /// True if the first function of the thread, such as `main`, waits itself.
    fn is_in_first(&self, path: &[FunctionId]) -> bool {
        let counts = |&f: &FunctionId| {
            let function = self.paths.code.function(f);
            !function.serves && function.role == Role::Plain && !function.is_of_runtime
        };
        let first = path.iter().position(|&f| self.enters_rust(f));
        // The `main` symbol of the linker is outside of the program's own `main`.
        let inside = &path[..first.unwrap_or(path.len())];
        inside.iter().filter(|f| counts(f)).count() <= 1
    }

    /// True for the function of the Rust runtime that calls `main`.
    fn enters_rust(&self, function: FunctionId) -> bool {
        let name = &self.paths.code.function(function).name;
        name.starts_with("std::rt::lang_start")
    }

    /// The paths at which a thread waits for work.
    pub(super) fn for_work(&self, thread: &ThreadTime) -> HashSet<PathId> {
        let mut for_work = HashSet::new();
        let (mut conditions, mut cut, mut others) = (Vec::new(), Vec::new(), Vec::new());
        for (&id, seen) in &thread.paths {
            let path = &self.paths.all()[id as usize];
            match self.paths.role(id) {
                // CPU time at such a path is spent on beginning and ending the wait.
                Role::ForWork => drop(for_work.insert(id)),
                Role::Condition if path.is_whole => conditions.push(id),
                Role::Condition => cut.push(id),
                Role::Sleep if path.is_whole && self.is_in_first(&path.functions) => {
                    for_work.insert(id);
                }
                _ if path.is_whole && seen.on + seen.off > 0 => others.push(&path.functions[..]),
                _ => {}
            }
        }
        if conditions.is_empty() && cut.is_empty() {
            return for_work;
        }
        let loops = common(others);
        let counts = |f: FunctionId| {
            let function = self.paths.code.function(f);
            !function.serves && function.role == Role::Plain
        };
        let at = |id: &PathId| &self.paths.all()[*id as usize].functions[..];
        let (in_loop, deeper): (Vec<PathId>, Vec<PathId>) = conditions
            .into_iter()
            .partition(|id| is_in_loop(at(id), loops, counts));
        // A truncated stack is not for work if a deeper wait has the same innermost functions.
        let is_deeper = |id: &PathId| deeper.iter().any(|whole| at(whole).starts_with(at(id)));
        cut.retain(|id| !is_deeper(id));
        for_work.extend(in_loop.into_iter().chain(cut));
        for_work
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loop_is_what_all_paths_have_in_common() {
        assert_eq!(common([]), None);
        assert_eq!(common([&[1, 2, 9][..]]), Some(&[1, 2, 9][..]));
        assert_eq!(
            common([&[1, 2, 9][..], &[3, 2, 9], &[2, 9]]),
            Some(&[2, 9][..])
        );
        assert_eq!(common([&[1, 2, 9][..], &[3]]), Some(&[][..]));
    }

    #[test]
    fn a_worker_waits_in_its_loop_and_a_request_deeper() {
        // 50 is a service; 9 the root, 8 the loop.
        let counts = |f: FunctionId| f < 50;
        let loops = common([&[1, 2, 8, 9][..], &[3, 8, 9]]);
        assert!(is_in_loop(&[50, 7, 8, 9], loops, counts));
        assert!(is_in_loop(&[50, 8, 9], loops, counts));
        assert!(!is_in_loop(&[50, 7, 3, 8, 9], loops, counts));
        // A thread that was seen only here counts as idle.
        assert!(is_in_loop(&[50, 7, 3, 8, 9], None, counts));
        // Its other paths share no frame with this one.
        assert!(!is_in_loop(&[50, 7, 8, 9], Some(&[]), counts));
    }
}
