//! Counters of the processor: the events requested from the kernel, and statistics about them.

use core::mem::size_of;
use core::sync::atomic::AtomicU64;

/// Number of 8-byte words of an [`Event`].
pub const WORDS: usize = 9;

/// A `struct perf_event_attr` in its second size (include/uapi/linux/perf_event.h,
/// PERF_ATTR_SIZE_VER1). An event in use never changes. All words are 0 if there is no event.
#[repr(C)]
pub struct Event {
    /// Type (lower half) and size, config, three words that are 0, flags, one word that is 0,
    /// config1, config2.
    pub words: [AtomicU64; WORDS],
}

impl Event {
    /// Creates an event from its words.
    pub const fn new(words: [u64; WORDS]) -> Self {
        let mut event = Self {
            words: [const { AtomicU64::new(0) }; WORDS],
        };
        let mut at = 0;
        while at < WORDS {
            event.words[at] = AtomicU64::new(words[at]);
            at += 1;
        }
        event
    }
}

/// The words of an event of type `kind` with these values of config, config1 and config2. The event
/// counts one thread, in user mode only.
pub const fn words(kind: u32, config: [u64; 3]) -> [u64; WORDS] {
    const SIZE: u64 = 8 * WORDS as u64;
    const EXCLUDE_KERNEL: u64 = 1 << 5;
    const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
    let mut words = [0; WORDS];
    words[0] = kind as u64 | SIZE << 32;
    words[1] = config[0];
    words[5] = EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR;
    words[7] = config[1];
    words[8] = config[2];
    words
}

/// Statistics of a counter over all threads.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Counted {
    /// Run time of the threads that have the counter, in ns.
    pub enabled: AtomicU64,
    /// The part of `enabled` in which the event was counted, in ns. It is less if the processor has
    /// too few hardware counters for all users.
    pub running: AtomicU64,
    /// The number of threads that could not open the counter.
    pub refused: AtomicU64,
}

const _: () = assert!(size_of::<Event>() == 8 * WORDS);
const _: () = assert!(size_of::<Counted>() == 24);
