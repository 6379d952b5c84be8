//! Rules that the command has published for code without unwind tables: rules of single return
//! addresses, of ranges in which generated code follows a convention, and of ranges whose unwind
//! entries are registered.

use core::sync::atomic::{AtomicU64, Ordering};

use abi::segment::{
    TABLE_OF_CONVENTIONS, TABLE_OF_REGISTERED, TABLE_OF_RULES, TableHead, TableRow,
};
use unwind::Rule;

use super::range::Range;
use crate::os::shared;

/// The rule of return address `pc`, which is in `range`. Registered unwind entries have priority.
/// `None` if the command has published none.
pub fn rule_of(range: &Range, pc: u64) -> Option<Rule> {
    registered(range, pc).or_else(|| found(range, pc))
}

/// The rule that the command has last published for the single return address `pc`; `None` if there
/// is none.
fn found(range: &Range, pc: u64) -> Option<Rule> {
    let all = shared::tables().filter_map(|(head, rows)| {
        if !is_of(head, TABLE_OF_RULES, pc) || !range.is_meant(head) {
            return None;
        }
        let found = rows.binary_search_by_key(&pc, |row| of(&row.start)).ok()?;
        Some(Rule::decode(of(&rows.get(found)?.value)))
    });
    // The latest table is the best.
    all.last()
}

/// The rule of return address `pc` by unwind entries that are still registered; `None` if none
/// cover it.
fn registered(range: &Range, pc: u64) -> Option<Rule> {
    let all = shared::tables().filter_map(|(head, rows)| {
        let holds = head.seen_tsc.load(Ordering::Acquire) != 0 && range.is_meant(head);
        if !is_of(head, TABLE_OF_REGISTERED, pc) || !holds {
            return None;
        }
        let word = last_row(rows, pc)?;
        (word != 0).then(|| Rule::decode(word))
    });
    all.last()
}

/// The rule of all return addresses in the code around `pc`, by its generator's conventions. `None`
/// if the command has published none. The rule can be a stop, for code in which frame pointers must
/// not be assumed.
pub fn convention_of(pc: u64) -> Option<Rule> {
    let all = shared::tables().filter_map(|(head, rows)| {
        let rows = is_of(head, TABLE_OF_CONVENTIONS, pc).then_some(rows)?;
        last_row(rows, pc).map(Rule::decode)
    });
    all.last()
}

/// True if the table `head` is of this kind and covers the call that returns to `pc`.
fn is_of(head: &TableHead, kind: u64, pc: u64) -> bool {
    of(&head.kind) == kind && of(&head.start) < pc && pc <= of(&head.end)
}

/// The value of the last row that begins before `pc`; `None` if none does.
fn last_row(rows: &[TableRow], pc: u64) -> Option<u64> {
    let after = rows.partition_point(|row| of(&row.start) < pc);
    Some(of(&rows.get(after.checked_sub(1)?)?.value))
}

fn of(word: &AtomicU64) -> u64 {
    word.load(Ordering::Relaxed)
}
