//! Epochs: a rule and a remembered walk hold as long as the code that they are about stays, and what is known of it.
//!
//! A new epoch begins when the command has published tables, and when code has gone or come. Walks are remembered
//! under the epoch that they were made in (`walk/memo.rs`), and so never found in another one. Rules are brought up to
//! date, once for all threads, before the first walk of an epoch.

use core::sync::atomic::{AtomicU64, Ordering};

use abi::image::EPOCH_OF_MAPS;
use abi::segment::{
    TABLE_OF_CONVENTIONS, TABLE_OF_ENTRIES, TABLE_OF_REGISTERED, TABLE_OF_RULES, TableHead,
};
use unwind::rule;

use super::rules::{Age, RULES};
use crate::os::lock::Lock;
use crate::os::shared;

/// The epoch. The command writes its first half, see [`abi::image::SYMBOL_EPOCH`].
#[unsafe(no_mangle)]
#[cfg_attr(ipath_image, unsafe(link_section = ".bss.every_call"))]
#[allow(non_upper_case_globals)]
pub static ipath_epoch: AtomicU64 = AtomicU64::new(0);

/// The epoch that rules are of.
static RENEWED: AtomicU64 = AtomicU64::new(0);

/// Bytes of published tables that rules agree with. Changed under `LOCK` alone.
static TABLES: AtomicU64 = AtomicU64::new(0);
static LOCK: Lock = Lock::new();

/// The epoch, unless rules have to be renewed first.
#[inline(always)]
pub fn current() -> Option<u64> {
    let epoch = number();
    (RENEWED.load(Ordering::Acquire) == epoch).then_some(epoch)
}

/// The epoch, whatever rules are of.
#[inline(always)]
pub fn number() -> u64 {
    ipath_epoch.load(Ordering::Acquire)
}

/// Brings rules up to date. Signals are blocked.
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

/// Begins another epoch: rules have been forgotten.
pub fn begin() {
    ipath_epoch.fetch_add(EPOCH_OF_MAPS, Ordering::AcqRel);
}

/// Forgets the rules that new tables may have better ones for.
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

/// Whether a call that returns to `pc` is in the code that a table is for.
pub fn is_in(head: &TableHead, pc: u64) -> bool {
    let of = |word: &AtomicU64| word.load(Ordering::Relaxed);
    (of(&head.start)..of(&head.end)).contains(&pc.wrapping_sub(1))
}

/// Whether a rule stands for want of a better one.
fn is_makeshift(word: u64) -> bool {
    matches!(rule::kind(word), rule::STOP | rule::FULL | rule::FROM_FP)
}
