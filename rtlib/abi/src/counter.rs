//! Counters of the processor: what the kernel is asked for, and how it went.

use core::mem::size_of;
use core::sync::atomic::AtomicU64;

/// Words of an [`Event`].
pub const WORDS: usize = 9;

/// A `struct perf_event_attr` in its second size (include/uapi/linux/perf_event.h, PERF_ATTR_SIZE_VER1). One that has
/// been used keeps what it is; one whose words are 0 is none.
#[repr(C)]
pub struct Event {
    /// Type and below it the size, config, three that are 0, flags, one that is 0, config1, config2.
    pub words: [AtomicU64; WORDS],
}

impl Event {
    /// Of its words.
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

/// The words of an event of a type, with its config, config1 and config2, that counts one thread in user mode alone.
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

/// How it went with a counter in all threads together.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Counted {
    /// Time in which threads ran that have it, ns.
    pub enabled: AtomicU64,
    /// The part of that in which it counted: less where the processor has too few counters for all that want one.
    pub running: AtomicU64,
    /// How many threads could not have it.
    pub refused: AtomicU64,
}

const _: () = assert!(size_of::<Event>() == 8 * WORDS);
const _: () = assert!(size_of::<Counted>() == 24);
