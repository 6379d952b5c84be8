//! The rows of profiles.

use std::collections::HashSet;

use super::document::{Document, FunctionDoc};
use super::role::Role;

impl Document {
    /// The functions and points that have a row in profiles, with their ids: those of
    /// [`Self::measured`], but a function whose calls are measured and whose edges are counted has
    /// one row for both.
    pub fn rows(&self) -> impl Iterator<Item = (usize, &FunctionDoc)> {
        let place = |f: &FunctionDoc| (f.module, f.address);
        let called = self.measured().filter(|(_, f)| f.role.is_measured());
        let called: HashSet<_> = called.map(|(_, f)| place(f)).collect();
        self.measured()
            .filter(move |(_, f)| f.role != Role::Edges || !called.contains(&place(f)))
    }
}
