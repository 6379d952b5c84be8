//! Functions together with their inlined copies.

use super::{Function, Profile};

impl Profile {
    /// The calls of a function together with the executions of its inlined copies, given one of
    /// these rows. `None` if there is only one row.
    pub fn calls_with_copies(&self, of: &Function) -> Option<u64> {
        let is_whole = |f: &Function| !f.point && !f.is_span();
        let copy = match &of.inlined_copy {
            Some(copy) => copy,
            None if !is_whole(of) => return None,
            None => {
                let copies = self.functions.iter().filter_map(|f| {
                    let copy = f.inlined_copy.as_ref()?;
                    (f.module == of.module).then_some(copy)
                });
                let mut copies = copies.filter(|copy| is_named(of, &copy.linkage));
                copies.next()?
            }
        };
        let is_same = |f: &&Function| {
            f.module == of.module
                && match &f.inlined_copy {
                    Some(other) => other.linkage == copy.linkage,
                    None => is_whole(f) && is_named(f, &copy.linkage),
                }
        };
        let rows = self.functions.iter().filter(is_same);
        let counts: Vec<u64> = rows.map(|f| f.totals.counts.count).collect();
        (counts.len() > 1).then(|| counts.iter().sum())
    }
}

fn is_named(function: &Function, linkage: &str) -> bool {
    function.linkage == linkage || function.aliases.iter().any(|alias| alias == linkage)
}
