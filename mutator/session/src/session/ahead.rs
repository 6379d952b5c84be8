//! Rules that nobody has asked for yet: of calls in the functions that have been asked for, and those that these call. A walk is likely to
//! come through them next, and the call that it is for would be on an incomplete path until the answer comes.

use std::collections::{HashSet, VecDeque};

use patcher::Avma;

use super::tables::{Unasked, unasked};
use ipath_target::process::modules::Module;

/// Calls from what has been asked for to what is looked at: of the functions that are asked for later most are one or
/// two away.
const FURTHEST: u32 = 2;

/// Most places that are looked at at a time: some milliseconds' work.
const MOST: usize = 64;

/// Most that are looked at at all.
const MOST_SEEN: usize = 1 << 18;

/// What is to be looked at, and what has been.
#[derive(Default)]
pub(super) struct Ahead {
    left: VecDeque<Place>,
    seen: HashSet<Place>,
    /// Return addresses whose rules have been published.
    published: HashSet<Avma>,
}

/// A place in code whose callees are of interest.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Place {
    /// What is after a call.
    After(Avma),
    /// A function, so many calls away.
    Function(Avma, u32),
}

impl Ahead {
    /// Notes that what the call does that returns to `at`, and its function afterwards, is of interest.
    pub(super) fn begin(&mut self, at: Avma) {
        self.add(Place::After(at));
    }

    fn add(&mut self, place: Place) {
        if self.seen.len() < MOST_SEEN && self.seen.insert(place) {
            self.left.push_back(place);
        }
    }

    /// Is there nothing left?
    pub(super) fn is_over(&self) -> bool {
        self.left.is_empty()
    }

    /// Notes that a rule is about to be published; false where it has been.
    pub(super) fn publish(&mut self, at: Avma) -> bool {
        self.published.len() < 8 * MOST_SEEN && self.published.insert(at)
    }

    /// Looks at some of what is left: the rules that it shows, which are to be published.
    pub(super) fn look(&mut self, modules: &[Module]) -> Vec<(Avma, u64)> {
        let mut found = Vec::new();
        for _ in 0..MOST {
            let Some(place) = self.left.pop_front() else {
                break;
            };
            let (at, from, calls) = match place {
                Place::After(at) => (at, Unasked::After, 0),
                Place::Function(at, calls) => (at, Unasked::Function, calls),
            };
            let is_in = |module: &&Module| module.code.iter().any(|code| code.contains(at));
            let Some(module) = modules.iter().find(is_in) else {
                continue;
            };
            let (rules, callees) = unasked(module, at, from);
            found.extend(rules.into_iter().filter(|rule| self.publish(rule.0)));
            for callee in callees.into_iter().filter(|_| calls < FURTHEST) {
                if !self.seen.contains(&Place::Function(callee, 1)) {
                    self.add(Place::Function(callee, calls + 1));
                }
            }
        }
        found
    }
}
