//! Unwind rules that are found before the runtime asks for them.
//!
//! They are for calls in the functions that have been asked about, and in the functions these call.
//! A walk is likely to pass through them next. Its call would have an incomplete path until the
//! answer came.

use std::collections::{HashSet, VecDeque};

use patcher::Avma;

use super::tables::{Unasked, unasked};
use ipath_target::process::modules::Module;

/// The most calls between a function asked about and one analyzed here. Most functions asked about
/// later are one or two calls away.
const FURTHEST: u32 = 2;

/// The most places to analyze at a time: some milliseconds of work.
const MAX_SITES: usize = 64;

/// The most places to analyze in total.
const MOST_SEEN: usize = 1 << 18;

/// The places to analyze, and those already queued.
#[derive(Default)]
pub(super) struct Ahead {
    left: VecDeque<CodeSite>,
    seen: HashSet<CodeSite>,
    /// Return addresses whose rules have been published.
    published: HashSet<Avma>,
}

/// A place in code whose callees are of interest.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum CodeSite {
    /// The code after the call that returns to this address.
    After(Avma),
    /// The function at this address, this many calls away.
    Function(Avma, u32),
}

impl Ahead {
    /// Queues the function that the call returning to `at` calls, and the rest of the calling
    /// function.
    pub(super) fn begin(&mut self, at: Avma) {
        self.add(CodeSite::After(at));
    }

    /// Queues a place, unless it has been queued before or too many have been.
    fn add(&mut self, place: CodeSite) {
        if self.seen.len() < MOST_SEEN && self.seen.insert(place) {
            self.left.push_back(place);
        }
    }

    /// True if no place is left.
    pub(super) fn is_over(&self) -> bool {
        self.left.is_empty()
    }

    /// Notes that a rule is about to be published. False if it already has been, or if too many
    /// have been.
    pub(super) fn publish(&mut self, at: Avma) -> bool {
        self.published.len() < 8 * MOST_SEEN && self.published.insert(at)
    }

    /// Analyzes some of the remaining places. Returns the return addresses with their encoded
    /// rules, which are to be published.
    pub(super) fn look(&mut self, modules: &[Module]) -> Vec<(Avma, u64)> {
        let mut found = Vec::new();
        for _ in 0..MAX_SITES {
            let Some(place) = self.left.pop_front() else {
                break;
            };
            let (at, from, calls) = match place {
                CodeSite::After(at) => (at, Unasked::After, 0),
                CodeSite::Function(at, calls) => (at, Unasked::Function, calls),
            };
            let is_in = |module: &&Module| module.code.iter().any(|code| code.contains(at));
            let Some(module) = modules.iter().find(is_in) else {
                continue;
            };
            let (rules, callees) = unasked(module, at, from);
            found.extend(rules.into_iter().filter(|rule| self.publish(rule.0)));
            for callee in callees.into_iter().filter(|_| calls < FURTHEST) {
                if !self.seen.contains(&CodeSite::Function(callee, 1)) {
                    self.add(CodeSite::Function(callee, calls + 1));
                }
            }
        }
        found
    }
}
