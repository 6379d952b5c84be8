//! The single calls that a profile has.

use super::{Function, Profile, SingleCall};

impl Function {
    /// The single calls that are kept, of either kind.
    pub fn single_calls(&self) -> impl Iterator<Item = &SingleCall> {
        self.slowest.iter().chain(&self.trace)
    }
}

impl Profile {
    /// True if single calls of some function are kept.
    pub fn has_single_calls(&self) -> bool {
        let mut functions = self.functions.iter();
        functions.any(|function| function.single_calls().next().is_some())
    }

    /// Forgets all single calls.
    pub(super) fn forget_single_calls(&mut self) {
        for function in &mut self.functions {
            function.slowest.clear();
            function.trace.clear();
        }
        (self.session.slowest, self.session.trace) = (0, 0);
    }
}
