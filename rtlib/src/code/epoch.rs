//! Epochs: the lifetimes of rules and cached walks. They hold while their code stays, and while the
//! knowledge of it is unchanged.
//!
//! A new epoch begins when the command has published tables, and when code is mapped or unmapped.
//! Walks are cached with their epoch (`walk/memo.rs`), so another epoch never finds them. Rules are
//! updated before the first walk of an epoch, once for all threads.

use core::sync::atomic::{AtomicU64, Ordering};

use abi::image::EPOCH_OF_MAPS;
use abi::segment::{
    TABLE_OF_CONVENTIONS, TABLE_OF_ENTRIES, TABLE_OF_REGISTERED, TABLE_OF_RULES, TableHead,
};
use unwind::rule;

use super::rules::{Age, RULES};
use crate::os::lock::Lock;
use crate::os::shared;

/// The current epoch. The command writes its low 32 bits, see [`abi::image::SYMBOL_EPOCH`].
#[unsafe(no_mangle)]
#[cfg_attr(ipath_image, unsafe(link_section = ".bss.every_call"))]
#[allow(non_upper_case_globals)]
pub static ipath_epoch: AtomicU64 = AtomicU64::new(0);

/// The epoch that the rules are up to date with.
static RENEWED: AtomicU64 = AtomicU64::new(0);

/// The number of bytes of published tables that the rules take into account. Changed under `LOCK`
/// only.
static TABLES: AtomicU64 = AtomicU64::new(0);
static LOCK: Lock = Lock::new();

/// The current epoch; `None` if [`renew`] must update the rules first.
#[inline(always)]
pub fn current() -> Option<u64> {
    let epoch = number();
    (RENEWED.load(Ordering::Acquire) == epoch).then_some(epoch)
}

/// The current epoch, even if the rules are not up to date with it.
#[inline(always)]
pub fn number() -> u64 {
    ipath_epoch.load(Ordering::Acquire)
}

/// Updates the unwind rules to the current epoch, unless they are up to date. The caller has
/// blocked signals.
pub fn renew() {
    if current().is_some() {
        return;
    }
    LOCK.lock();
    while current().is_none() {
        let epoch = number();
        forget_before_tables();
        RENEWED.store(epoch, Ordering::Release);
    }
    LOCK.unlock();
}

/// Begins another epoch, because rules were forgotten.
pub fn begin() {
    ipath_epoch.fetch_add(EPOCH_OF_MAPS, Ordering::AcqRel);
}

/// Forgets rules for which tables published since the last call may contain better ones.
fn forget_before_tables() {
    let used = shared::tables_used();
    let of = |word: &AtomicU64| word.load(Ordering::Relaxed);
    for (head, rows) in shared::tables_from(TABLES.load(Ordering::Relaxed)) {
        match of(&head.kind) {
            TABLE_OF_RULES => {
                for row in rows {
                    RULES.forget_one(of(&row.start));
                }
            }
            TABLE_OF_CONVENTIONS | TABLE_OF_REGISTERED => {
                RULES.forget(|pc, _| if is_in(head, pc) { Age::Old } else { Age::New });
            }
            TABLE_OF_ENTRIES => {
                let is_of_it = |pc: u64| is_in(head, pc);
                RULES.forget(|pc, word| {
                    if is_of_it(pc) && is_makeshift(word) {
                        Age::Old
                    } else {
                        Age::New
                    }
                });
            }
            _ => {}
        }
    }
    TABLES.store(used, Ordering::Relaxed);
}

/// True if a call that returns to `pc` is in the code that the table `head` covers.
pub fn is_in(head: &TableHead, pc: u64) -> bool {
    let of = |word: &AtomicU64| word.load(Ordering::Relaxed);
    (of(&head.start)..of(&head.end)).contains(&pc.wrapping_sub(1))
}

/// True if a table may contain a better rule than the encoded rule `word`.
fn is_makeshift(word: u64) -> bool {
    matches!(rule::kind(word), rule::STOP | rule::FULL | rule::FROM_FP)
}
