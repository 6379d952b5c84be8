//! Guesses from samples which functions may explain them. Measurements decide.

use std::collections::{BTreeMap, BTreeSet};

use patcher::Avma;

use super::{Cost, MeasuredPath, Stack};

/// The basis of a guess.
pub(super) struct Known<'k> {
    /// The share below which the time of a function goes to its callers.
    pub(super) min_share: f64,
    /// Measured functions. They keep their time, however little it is.
    pub(super) measured: &'k BTreeSet<Avma>,
    /// Functions that must not be measured. Their time goes to their callers.
    pub(super) passed: &'k BTreeSet<Avma>,
    /// The call paths of functions that are no longer measured.
    pub(super) paths: &'k BTreeMap<Avma, Vec<MeasuredPath>>,
}

/// The share that each function may explain. The time of a stack goes to the innermost function
/// that may be measured, and that reaches [`Known::min_share`] with all the time that goes to it.
pub(super) fn guess(stacks: &[Stack], whole: Cost, known: &Known<'_>) -> BTreeMap<Avma, Cost> {
    let stacks = with_exact_callers(stacks, known);
    let share = |stack: &Stack| stack.cost.share_of(whole, known.min_share);
    let shares: Vec<Cost> = stacks.iter().map(share).collect();
    let mut places: Vec<Option<usize>> = stacks
        .iter()
        .map(|stack| from(stack, stack.charged, known))
        .collect();
    loop {
        let mut found: BTreeMap<Avma, Cost> = BTreeMap::new();
        for ((stack, place), share) in stacks.iter().zip(&places).zip(&shares) {
            if let Some(at) = *place {
                *found.entry(stack.functions[at]).or_default() += *share;
            }
        }
        let is_small = |f: &Avma, share: &Cost| {
            share.largest() < known.min_share && !known.measured.contains(f)
        };
        let small = found.iter().filter(|(f, share)| is_small(f, share));
        let small: BTreeSet<Avma> = small.map(|(f, _)| *f).collect();
        if small.is_empty() {
            return found;
        }
        // Begin with the functions that are inside other small ones. Together they may be enough
        // for a common caller.
        let mut awaited: BTreeSet<Avma> = BTreeSet::new();
        for (stack, place) in stacks.iter().zip(&places) {
            let Some(at) = *place else { continue };
            let own = stack.functions[at];
            if small.contains(&own) {
                let outer = stack.functions[at..].iter().filter(|f| **f != own);
                awaited.extend(outer.filter(|f| small.contains(f)));
            }
        }
        let mut leaving: BTreeSet<Avma> = small.difference(&awaited).copied().collect();
        if leaving.is_empty() {
            // They call each other.
            leaving = small;
        }
        for (stack, place) in stacks.iter().zip(&mut places) {
            if let Some(at) = *place
                && leaving.contains(&stack.functions[at])
            {
                *place = outside(stack, at, known);
            }
        }
    }
}

/// The index on the stack of the innermost function from `at` outwards that may be measured. `None`
/// if there is none.
fn from(stack: &Stack, at: usize, known: &Known<'_>) -> Option<usize> {
    (at..stack.functions.len()).find(|&at| !known.passed.contains(&stack.functions[at]))
}

/// The index on the stack of the innermost function that may be measured, outside the function at
/// `at` and its direct recursion. `None` if there is none.
fn outside(stack: &Stack, at: usize, known: &Known<'_>) -> Option<usize> {
    let own = stack.functions[at];
    let next = (at..stack.functions.len()).find(|&at| stack.functions[at] != own)?;
    from(stack, next, known)
}

/// Moves time from functions whose callers are known exactly to these callers, in place of the
/// sampled ones.
fn with_exact_callers(stacks: &[Stack], known: &Known<'_>) -> Vec<Stack> {
    let mut moved: BTreeMap<Avma, Cost> = BTreeMap::new();
    let mut kept = Vec::new();
    for stack in stacks {
        let end = from(stack, stack.charged, known).unwrap_or(stack.functions.len());
        let passed = stack.functions.get(stack.charged..end).unwrap_or(&[]);
        match passed.iter().find(|f| known.paths.contains_key(f)) {
            Some(&function) => *moved.entry(function).or_default() += stack.cost,
            None => kept.push(stack.clone()),
        }
    }
    for (function, cost) in moved {
        let paths = &known.paths[&function];
        let all: Cost = paths.iter().map(|path| path.cost).sum();
        for path in paths {
            kept.push(path.stack(function, cost * (path.cost.sum() / all.sum())));
        }
    }
    kept
}
