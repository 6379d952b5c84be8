//! Deregistration of unwind entries of code that the program has generated.

use core::sync::atomic::Ordering;

use abi::segment::{TABLE_OF_REGISTERED, TableHead};

use super::epoch;
use super::rules::{Age, RULES};
use crate::arch::clock;
use crate::os::{foreign, shared};

/// `action_flag` of `struct jit_descriptor` (GDB manual, "JIT Compilation Interface").
const JIT_UNREGISTER: u64 = 2;
/// Offset of `first_entry` in `struct jit_descriptor`, in bytes: after `version`, `action_flag` and
/// `relevant_entry`.
const DESCRIPTOR: usize = 16;
/// Offset of `symfile_addr` in `struct jit_code_entry`, in bytes.
const FILE: u64 = 16;

/// Drops the tables of entries that the program is about to deregister: entries at `first`, the
/// argument of `__deregister_frame`, and entries of the file that a `__jit_debug_descriptor`
/// removes. Stores the time in the segment's header.
pub fn take_back(first: u64) {
    if !shared::is_mapped() {
        return;
    }
    let now = clock::now();
    shared::header().taken_back.store(now, Ordering::SeqCst);
    drop_tables(|head| {
        let (key, descriptor) = (&head.frames, &head.frames_end);
        let key = key.load(Ordering::Relaxed);
        key == first || is_removed(key, descriptor.load(Ordering::Relaxed))
    });
}

/// Drops the tables of registered code for which `is_over` is true, forgets the rules of that code,
/// and begins another epoch if there are any.
pub fn drop_tables(is_over: impl Fn(&TableHead) -> bool) {
    let mut is_begun = false;
    for (head, _) in shared::tables() {
        let is_held = head.kind.load(Ordering::Relaxed) == TABLE_OF_REGISTERED
            && head.seen_tsc.load(Ordering::SeqCst) != 0;
        if !is_held || !is_over(head) {
            continue;
        }
        head.seen_tsc.store(0, Ordering::SeqCst);
        if !is_begun {
            // Another thread may find a rule by this table before the table is marked. That thread
            // forgets the rule, because its epoch is over.
            epoch::begin();
            is_begun = true;
        }
        RULES.forget(|pc, _| {
            if epoch::is_in(head, pc) {
                Age::OfOther
            } else {
                Age::New
            }
        });
    }
    if is_begun {
        epoch::begin();
    }
}

/// True if the descriptor at `descriptor` is about to remove the file at `key`, or cannot be read.
fn is_removed(key: u64, descriptor: u64) -> bool {
    if descriptor == 0 {
        return false;
    }
    let Some(head) = read::<DESCRIPTOR>(descriptor) else {
        return true;
    };
    if word(&head, 0) >> 32 != JIT_UNREGISTER {
        return false;
    }
    let file = read::<8>(word(&head, 8).wrapping_add(FILE));
    file.is_none_or(|file| word(&file, 0) == key)
}

/// The `N` bytes at address `at`; `None` if they are not mapped or the kernel cannot be asked.
fn read<const N: usize>(at: u64) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    (foreign::try_read(at, &mut bytes) == Some(N)).then_some(bytes)
}

/// The word at byte offset `at`; 0 beyond the end.
fn word(bytes: &[u8], at: usize) -> u64 {
    let word = bytes.get(at..).and_then(<[u8]>::first_chunk);
    word.map_or(0, |word| u64::from_le_bytes(*word))
}
