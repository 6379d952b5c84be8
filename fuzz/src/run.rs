//! Runs the cases of a target.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::random::Random;
use crate::watch::Watch;
use crate::{corpus, memory};

/// The maximum number of mutations of an input.
const CHANGES: usize = 8;

/// A reader, and the way in which its inputs are made.
pub struct Target {
    /// Its name.
    pub name: &'static str,
    /// The folder of its corpus.
    pub corpus: &'static str,
    /// Mutates an input once.
    pub change: fn(&mut Random, &[Vec<u8>], &mut Vec<u8>),
    /// The number of cases in an ordinary test run.
    pub cases: u64,
}

/// Passes the corpus to a reader, first unchanged and then mutated. The reader returns true if it
/// accepted an input: an input that is rejected at once tests little.
///
/// # Panics
/// If the reader panics, reporting the path of the saved input, or if it accepts no input of the
/// corpus.
pub fn run(target: &Target, mut read: impl FnMut(&[u8]) -> bool) {
    if let Some(path) = std::env::var_os("IPATH_FUZZ_INPUT") {
        let input = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let taken = read(&input);
        return println!("{}: {}: taken: {taken}", target.name, path.display());
    }
    let inputs = corpus::load(target.corpus);
    let seed = setting("IPATH_FUZZ_SEED").unwrap_or(1);
    let cases = setting("IPATH_FUZZ_CASES").unwrap_or(target.cases);
    let watch = Watch::new(target.name, seed);
    let (mut taken, mut kept_taken) = (0, false);
    for case in 0..inputs.len() as u64 + cases {
        let input = input(target, &inputs, seed, case);
        watch.begin(case, &input);
        memory::begin();
        let result = catch_unwind(AssertUnwindSafe(|| read(&input)));
        memory::end();
        watch.end();
        let is_kept = case < inputs.len() as u64;
        kept_taken |= is_kept && matches!(result, Ok(true));
        taken += u64::from(!is_kept && matches!(result, Ok(true)));
        if result.is_err() {
            let kept = corpus::keep(target.name, seed, case, &input);
            panic!(
                "{}: case {case} of seed {seed}: {}",
                target.name,
                kept.display()
            );
        }
    }
    assert!(kept_taken, "{}: takes none of its corpus", target.name);
    println!(
        "{}: {cases} cases of seed {seed}, {taken} taken",
        target.name
    );
}

fn input(target: &Target, inputs: &[Vec<u8>], seed: u64, case: u64) -> Vec<u8> {
    if let Some(whole) = inputs.get(case as usize) {
        return whole.clone();
    }
    let mut random = Random::new(seed, case);
    let mut input = random.pick(inputs).cloned().unwrap_or_default();
    for _ in 0..=random.below(CHANGES) {
        (target.change)(&mut random, inputs, &mut input);
    }
    input
}

fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text} is no number")),
    )
}
