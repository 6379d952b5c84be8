//! Remembered walks: a call whose stack holds the words that an earlier walk has read, in the same
//! places, is on the same path, at the price of a comparison.
//!
//! Walking is deterministic: where a walk reads next follows from the words it has read so far. So
//! what a walk remembers is the list of its reads, in their order, and two walks of a function from
//! one stack slot agree up to some word and part there for good. The walks of a slot therefore form
//! a tree. Each [`Run`] is a piece of it without a branch; where a word differs, the word's place in
//! its run and the value found lead to another run, if such a call has been here before.
//!
//! ```text
//! (function, slot) ─► run: w0 w1 w2 w3 w4 ─► record A
//!                             └ (place of w2, other value) ─► run: w3' w4' w5' ─► record B
//! ```
//!
//! Comparing in the order of the walk also keeps it safe: each word is read only where all before it
//! were equal, and then the walk itself would read it.

use core::mem::size_of;

/// Bytes for runs.
const ARENA: u64 = 1 << 19;
/// Slots of the table of runs, a power of two.
const SLOTS: u64 = 1 << 13;
/// Slots looked at for a key.
const PROBES: u64 = 4;

/// Bytes that a thread's remembered walks take.
pub const BYTES: u64 = SLOTS * size_of::<Entry>() as u64 + ARENA;

/// A word that a walk has read, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Read {
    /// Its address.
    pub at: u64,
    /// Its value.
    pub value: u64,
}

/// A piece of a walk to its end; its reads stand behind it.
#[repr(C)]
pub struct Run {
    /// Behind the last read.
    end: *const Read,
    /// What the walk found: the root frame's CFA, or 0 where it did not come so far.
    pub stack: u64,
    /// And the record of the path.
    pub record: u32,
    _padding: u32,
}

/// Where a run begins: a function's slot, or a branch off another run.
#[repr(C)]
struct Entry {
    key: Key,
    run: *const Run,
}

/// `(slot, function)` or `(address of a read in its run, value found)`: no slot lies among the runs.
/// All zeros while free.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C)]
struct Key(u64, u64);

/// A thread's remembered walks, over memory of [`BYTES`].
#[repr(C)]
pub struct Memo {
    table: *mut Entry,
    /// Where the next run goes, and where the arena ends.
    free: u64,
    end: u64,
}

/// Where a comparison has failed.
#[derive(Clone, Copy)]
pub struct Miss {
    key: Key,
    /// Reads that were equal, and the one that was not.
    matched: usize,
}

impl Key {
    #[inline(always)]
    fn place(self, probe: u64) -> usize {
        let mixed = (self.0 ^ self.1.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((mixed >> 40).wrapping_add(probe) % SLOTS) as usize
    }
}

impl Memo {
    /// Nothing remembered yet.
    ///
    /// # Safety
    /// `base` is the address of [`BYTES`] of zeroed memory, aligned to 8, that nobody else uses.
    pub const unsafe fn new(base: u64) -> Self {
        Self {
            table: base as *mut Entry,
            free: base + SLOTS * size_of::<Entry>() as u64,
            end: base + BYTES,
        }
    }

    /// The run whose reads are equal, for a call of `function` whose return address is at `slot`.
    ///
    /// # Safety
    /// The stack at `slot` is the calling thread's, and no walk was remembered under other rules.
    #[inline(always)]
    pub unsafe fn find(&self, function: u32, slot: u64) -> Result<&Run, Miss> {
        let mut key = Key(slot, u64::from(function));
        let mut matched = 0;
        // SAFETY: runs lie in the arena, their reads behind them; what is read of the stack is what
        // a walk would read.
        unsafe {
            'runs: loop {
                let Some(run) = self.look_up(key) else {
                    return Err(Miss { key, matched });
                };
                let first = run.add(1).cast::<Read>();
                let mut read = first;
                while read != (*run).end {
                    let found = ((*read).at as *const u64).read_volatile();
                    if found != (*read).value {
                        matched += read.offset_from(first) as usize + 1;
                        key = Key(read as u64, found);
                        continue 'runs;
                    }
                    read = read.add(1);
                }
                return Ok(&*run);
            }
        }
    }

    #[inline(always)]
    fn look_up(&self, key: Key) -> Option<*const Run> {
        for probe in 0..PROBES {
            // SAFETY: the index is below SLOTS.
            let entry = unsafe { &*self.table.add(key.place(probe)) };
            if entry.key == key {
                return Some(entry.run);
            }
        }
        None
    }

    /// Remembers a walk that was not found: all its reads, and what it came to.
    pub fn remember(&mut self, miss: Miss, reads: &[Read], stack: u64, record: u32) {
        let Some(reads) = reads.get(miss.matched..) else {
            return;
        };
        let bytes = (size_of::<Run>() + size_of_val(reads)) as u64;
        if self.free + bytes > self.end && !self.forget(miss, bytes) {
            return;
        }
        let places = (0..PROBES).map(|probe| miss.key.place(probe));
        // SAFETY: places are below SLOTS; the arena has room for the run and its reads.
        unsafe {
            let is_free = |at: &usize| (*self.table.add(*at)).key == Key(0, 0);
            let place = places.clone().find(is_free);
            let Some(place) = place.or_else(|| places.clone().next()) else {
                return;
            };
            let run = self.free as *mut Run;
            let first = run.add(1).cast::<Read>();
            for (index, read) in reads.iter().enumerate() {
                first.add(index).write(*read);
            }
            run.write(Run {
                end: first.add(reads.len()),
                stack,
                record,
                _padding: 0,
            });
            self.free += bytes;
            self.table.add(place).write(Entry { key: miss.key, run });
        }
    }

    /// Forgets all walks to have room; whether what was missed can be remembered then: a branch has
    /// nothing left to branch off.
    #[cold]
    fn forget(&mut self, miss: Miss, bytes: u64) -> bool {
        let arena = self.end - ARENA;
        for place in 0..SLOTS as usize {
            // SAFETY: below SLOTS.
            unsafe {
                (*self.table.add(place)).key = Key(0, 0);
            }
        }
        self.free = arena;
        miss.matched == 0 && bytes <= ARENA
    }
}
