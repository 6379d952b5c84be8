//! Rules that the command has published, of code without unwind tables: of return addresses, and of ranges in which a
//! generator of code keeps to a convention.

use core::sync::atomic::{AtomicU64, Ordering};

use abi::rule::Rule;
use abi::segment::{TABLE_OF_CONVENTIONS, TABLE_OF_RULES};

use super::range::Range;
use crate::os::shared;

/// The rule of a return address in this code.
pub fn rule_of(range: &Range, pc: u64) -> Option<Rule> {
    let of = |word: &AtomicU64| word.load(Ordering::Relaxed);
    // The latest is the best.
    let all = shared::tables().filter_map(|(head, rows)| {
        if of(&head.kind) != TABLE_OF_RULES
            || pc <= of(&head.start)
            || of(&head.end) < pc
            || !range.is_meant(head)
        {
            return None;
        }
        let found = rows.binary_search_by_key(&pc, |row| of(&row.start)).ok()?;
        Some(Rule::decode(of(&rows.get(found)?.value)))
    });
    all.last()
}

/// The rule of all return addresses in the code around `pc`: of a stop where nothing may be guessed.
pub fn convention_of(pc: u64) -> Option<Rule> {
    let of = |word: &AtomicU64| word.load(Ordering::Relaxed);
    let all = shared::tables().filter_map(|(head, rows)| {
        if of(&head.kind) != TABLE_OF_CONVENTIONS || pc <= of(&head.start) || of(&head.end) < pc {
            return None;
        }
        let after = rows.partition_point(|row| of(&row.start) < pc);
        Some(Rule::decode(of(&rows.get(after.checked_sub(1)?)?.value)))
    });
    all.last()
}
