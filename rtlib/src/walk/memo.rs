//! A cache of walks. A call whose stack holds the same words at the same addresses that an earlier
//! walk has read is on the same path. Its lookup costs one comparison per word.
//!
//! Walking is deterministic: the words read so far decide which word is read next. So a cached walk
//! is the list of its reads, in order. Two walks of a function from the same stack slot agree up to
//! some word and differ for good after it. The walks from a slot therefore form a tree. Each
//! [`Run`] is a part of the tree without a branch. At a word that differs, the place of the word in
//! its run and the value found lead to another run, if there was such a call before.
//!
//! ```text
//! (function, slot) ─► run: w0 w1 w2 w3 w4 ─► record A
//!                             └ (place of w2, other value) ─► run: w3' w4' w5' ─► record B
//! ```
//!
//! Comparing in the order of the walk is also safe: a word is only read if all words before it were
//! equal, and then the walk itself would read it.

use core::mem::size_of;

use abi::segment::RecordHead;

use crate::os::hash::MULTIPLIER;

/// Bytes reserved for runs.
const ARENA: u64 = 1 << 19;
/// Reads compared per iteration. The last read of a run is repeated so that the number of reads is
/// a multiple of this.
const UNROLLED: usize = 4;
/// Buckets of the table of runs.
const BUCKETS: u64 = (1 << BUCKET_BITS) + PROBES - 1;
const BUCKET_BITS: u32 = 13;
/// Caching is worth its cost if, between two clearings, fewer than one in this number of calls
/// misses.
const WORTH: u64 = 3;
/// The number of calls for which caching pauses, if caching is not worth its cost. It doubles with
/// each pause in a row.
const SHORTEST_REST: u64 = 1 << 14;
/// The maximum number of calls of a pause.
const LONGEST_REST: u64 = 1 << 20;
/// The part of the arena that is filled after a pause, to find out if caching is worth its cost
/// now.
const TRIAL: u64 = ARENA / 4;
/// Buckets probed for a key.
pub const PROBES: u64 = 4;

/// Shift that turns the product of a key and the multiplier into the number of its first bucket.
pub const HASH_SHIFT: u32 = u64::BITS - BUCKET_BITS;

/// Entries that hold the last run without words of each function, by the lowest bits of its id. The
/// stub finds them without a hash.
pub const LAST: usize = 1 << 6;
/// Bytes from the start of the table to those entries.
pub const LAST_AT: usize = BUCKETS as usize * size_of::<Entry>();

/// Bytes of the table.
const TABLE_BYTES: u64 = (LAST_AT + LAST * size_of::<Entry>()) as u64;
/// Bytes of a thread's cache of walks.
pub const BYTES: u64 = TABLE_BYTES + ARENA;

/// A word that a walk has read, with its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Read {
    /// The address of the word, on the stack.
    pub at: u64,
    /// The value of the word.
    pub value: u64,
}

/// A part of a walk up to its end. Its reads follow it in memory.
#[repr(C)]
pub struct Run {
    /// The address after the last read.
    end: *const Read,
    /// The identity of the walk's stack, see [`super::outcome::Walk`].
    pub stack: u64,
    /// The record of the walk's path.
    pub record: *const RecordHead,
    /// The measurement overhead of a call whose walk is found here, in ticks.
    pub cost: u64,
}

/// The start of a run: the slot of a function, or a branch off another run.
#[repr(C)]
pub struct Entry {
    /// The key; all zeroes if the bucket is free.
    key: WalkKey,
    /// The run that begins at the key.
    run: *const Run,
    /// The record of the path if all words of the run are equal. The stub prefetches it.
    record: *const RecordHead,
}

/// `(slot, epoch and function)` or `(address of a read in its run, value found)`. No slot is an
/// address within the runs. All zeroes if the bucket is free.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C)]
struct WalkKey(u64, u64);

/// A function's id, with the epoch in the bits above it. The stub computes the same word.
#[derive(Clone, Copy)]
pub struct InEpoch(u64);

/// A thread's cache of walks, in memory of [`BYTES`].
#[repr(C)]
pub struct Memo {
    /// The hash table of runs.
    pub table: *mut Entry,
    /// The address at which the next run is stored.
    free: u64,
    /// The address at which runs end for now. It grows up to `end`.
    limit: u64,
    /// The end address of the arena.
    end: u64,
    /// The number of misses since the cache was last cleared.
    misses: u64,
    /// The thread's number of calls when the cache was last cleared.
    calls: u64,
    /// The remaining calls of the present pause, in which nothing is cached; 0 outside of a pause.
    rest: u64,
    /// The length of the last pause, in calls.
    last_rest: u64,
}

/// The point at which a comparison has failed.
#[derive(Clone, Copy)]
pub struct Miss {
    key: WalkKey,
    /// The number of equal reads, not including the one that differs.
    matched: usize,
}

impl Run {
    /// Sets the run to one without words to compare.
    #[inline(always)]
    pub fn set(&mut self, stack: u64, record: *const RecordHead, cost: u64) {
        // Volatile, see `Entry::set_key`.
        // SAFETY: fields of `self`.
        unsafe {
            (&raw mut self.cost).write_volatile(cost);
            (&raw mut self.stack).write_volatile(stack);
            (&raw mut self.record)
                .cast::<u64>()
                .write_volatile(record as u64);
        }
    }
}

/// A run outside of a cache, with its reads.
#[repr(C)]
pub struct Apart<const N: usize> {
    run: Run,
    reads: [Read; N],
}

impl<const N: usize> Default for Apart<N> {
    fn default() -> Self {
        let run = Run {
            end: core::ptr::null(),
            stack: 0,
            record: core::ptr::null(),
            cost: 0,
        };
        let reads = [Read { at: 0, value: 0 }; N];
        Self { run, reads }
    }
}

impl<const N: usize> Apart<N> {
    /// Makes the object a run of the first `words` reads, each of which reads a word of the object
    /// itself. `stack` and `record` are the result of the walk.
    pub fn make(&mut self, words: usize, stack: u64, record: *const RecordHead) {
        self.run.set(stack, record, 0);
        for read in &mut self.reads {
            read.at = &raw const read.value as u64;
        }
        self.run.end = self.reads[..words].as_ptr_range().end;
    }

    /// The run.
    pub fn run(&self) -> *const Run {
        (&raw const *self).cast()
    }
}

/// An entry that was replaced, and its index in the table.
pub struct Replaced {
    place: usize,
    key: WalkKey,
    run: *const Run,
    record: *const RecordHead,
}

impl Read {
    /// Copies a read word by word, see [`Entry::set_key`].
    #[inline(always)]
    unsafe fn put(to: *mut Self, from: &Self) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            (&raw mut (*to).at).write_volatile(from.at);
            (&raw mut (*to).value).write_volatile(from.value);
        }
    }
}

impl Entry {
    /// Sets the key. Volatile: otherwise the compiler would store both words with a vector
    /// register, and those belong to the application here. A jump out of here between the stores
    /// leaves a key that matches nothing, because no slot is 0.
    #[inline(always)]
    fn set_key(&mut self, key: WalkKey) {
        // SAFETY: two fields of `self`.
        unsafe {
            (&raw mut self.key.0).write_volatile(0);
            (&raw mut self.key.1).write_volatile(key.1);
            (&raw mut self.key.0).write_volatile(key.0);
        }
    }

    /// Sets the entry. A signal handler may jump out of here, so at no time does a key lead to the
    /// run of another key.
    #[inline(always)]
    fn set(&mut self, key: WalkKey, run: *const Run, record: *const RecordHead) {
        self.set_key(WalkKey(0, 0));
        // SAFETY: fields of `self`.
        unsafe {
            (&raw mut self.run).write_volatile(run);
            (&raw mut self.record)
                .cast::<u64>()
                .write_volatile(record as u64);
        }
        self.set_key(key);
    }
}

impl InEpoch {
    /// Combines a function and an epoch.
    #[inline(always)]
    pub const fn of(function: u32, epoch: u64) -> Self {
        Self(epoch | function as u64)
    }
}

impl WalkKey {
    /// The index of bucket number `probe` in which the key may be.
    #[inline(always)]
    fn place(self, probe: u64) -> usize {
        let mixed = (self.0 ^ self.1.rotate_left(32)).wrapping_mul(MULTIPLIER);
        ((mixed >> HASH_SHIFT) + probe) as usize
    }
}

impl Memo {
    /// Turns zeroed memory into an empty cache of walks. It works in place, because the runtime's
    /// is inside a larger structure.
    ///
    /// # Safety
    /// `base` is the address of [`BYTES`] of zeroed memory, aligned to 8, without another user.
    pub const unsafe fn begin(&mut self, base: u64) {
        self.table = base as *mut Entry;
        self.free = base + BYTES - ARENA;
        self.limit = base + BYTES;
        self.end = base + BYTES;
    }

    /// The run whose reads are equal, for a call of a function in this epoch with its return
    /// address at `slot`.
    ///
    /// # Errors
    /// No such run is cached: the point at which the comparison has failed.
    ///
    /// # Safety
    /// The stack at `slot` belongs to the calling thread, and no walk from it was cached under
    /// other rules.
    #[inline(always)]
    pub unsafe fn find(&self, function: InEpoch, slot: u64) -> Result<&Run, Miss> {
        let mut key = WalkKey(slot, function.0);
        let mut matched = 0;
        // SAFETY: runs are in the arena, each before its reads. Only stack words that a walk would
        // read are read.
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
                        key = WalkKey(read as u64, found);
                        continue 'runs;
                    }
                    read = read.add(1);
                }
                return Ok(&*run);
            }
        }
    }

    /// The run of a key; `None` if there is none.
    #[inline(always)]
    fn look_up(&self, key: WalkKey) -> Option<*const Run> {
        for probe in 0..PROBES {
            // SAFETY: the place is below BUCKETS.
            let entry = unsafe { &*self.table.add(key.place(probe)) };
            if entry.key == key {
                return Some(entry.run);
            }
        }
        None
    }

    /// True if caching is paused, because too few walks were found again.
    #[inline(always)]
    pub fn is_resting(&self) -> bool {
        self.rest != 0
    }

    /// Counts a call of the pause, after `calls` earlier calls of the thread. Calls in a pause say
    /// nothing about the worth of caching.
    #[inline(always)]
    pub fn rest(&mut self, calls: u64) {
        self.rest -= 1;
        self.calls = calls;
    }

    /// Caches a walk that was not found: its reads and its result. False if there is no room now.
    /// `calls` is the number of all calls of the thread.
    pub fn remember(
        &mut self,
        miss: &Miss,
        reads: &[Read],
        stack: u64,
        record: *const RecordHead,
        cost: u64,
        calls: u64,
    ) -> bool {
        self.misses += 1;
        let Some(reads) = reads.get(miss.matched..) else {
            return false;
        };
        let padded = reads.len().next_multiple_of(UNROLLED);
        let bytes = (size_of::<Run>() + padded * size_of::<Read>()) as u64;
        if self.free + bytes > self.limit && !self.forget(miss, bytes, calls) {
            return false;
        }
        let first = miss.key.place(0);
        // SAFETY: places are below BUCKETS; the arena has room for the run and its reads.
        unsafe {
            let is_free = |at: &usize| (*self.table.add(*at)).key == WalkKey(0, 0);
            let place = (first..first + PROBES as usize).find(is_free);
            let place = place.unwrap_or(first);
            let run = self.free as *mut Run;
            let first = run.add(1).cast::<Read>();
            let last = reads.last();
            let again = last.into_iter().cycle().take(padded - reads.len());
            for (index, read) in reads.iter().chain(again).enumerate() {
                Read::put(first.add(index), read);
            }
            run.write(Run {
                end: first.add(padded),
                stack,
                record,
                cost,
            });
            self.free += bytes;
            (*self.table.add(place)).set(miss.key, run, record);
            if padded == 0 {
                let last = self.table.byte_add(LAST_AT).add(miss.key.1 as usize % LAST);
                (*last).set(miss.key, run, record);
            }
            true
        }
    }

    /// Makes lookups of a call find a run, until [`Memo::put_back`].
    ///
    /// # Safety
    /// The run is whole, and stays until then.
    pub unsafe fn put(&mut self, slot: u64, function: InEpoch, run: *const Run) -> Replaced {
        let key = WalkKey(slot, function.0);
        let place = key.place(0);
        // SAFETY: below BUCKETS.
        let entry = unsafe { &mut *self.table.add(place) };
        let replaced = Replaced {
            place,
            key: entry.key,
            run: entry.run,
            record: entry.record,
        };
        entry.run = run;
        // Prefetching an address without memory would slow down the stub.
        // SAFETY: guaranteed by the caller.
        entry.record = unsafe { (*run).record };
        entry.set_key(key);
        replaced
    }

    /// Restores the entry that [`Memo::put`] replaced.
    pub fn put_back(&mut self, replaced: Replaced) {
        // SAFETY: as in `put`.
        let entry = unsafe { &mut *self.table.add(replaced.place) };
        entry.run = replaced.run;
        entry.record = replaced.record;
        entry.set_key(replaced.key);
    }

    /// Forgets the walks of a function's calls with their return address at `slot`.
    pub fn forget_call(&mut self, function: InEpoch, slot: u64) {
        let key = WalkKey(slot, function.0);
        for probe in 0..PROBES {
            // SAFETY: the place is below BUCKETS.
            let entry = unsafe { &mut *self.table.add(key.place(probe)) };
            if entry.key == key {
                entry.set_key(WalkKey(0, 0));
            }
        }
    }

    /// Forgets all walks, because their results belong to another thread.
    pub fn forget_all(&mut self) {
        self.clear();
        (self.rest, self.last_rest, self.misses) = (0, 0, 0);
        self.limit = self.end;
    }

    /// Removes all runs.
    fn clear(&mut self) {
        for place in 0..BUCKETS as usize + LAST {
            // SAFETY: the table has as many entries.
            unsafe {
                (*self.table.add(place)).set_key(WalkKey(0, 0));
            }
        }
        self.free = self.end - ARENA;
    }

    /// Forgets all walks to make room, and begins a pause if caching has not been worth its cost.
    /// True if the missed walk, which needs `bytes` bytes, can be cached now. A branch cannot,
    /// because the run that it branched off is gone.
    #[cold]
    fn forget(&mut self, miss: &Miss, bytes: u64, calls: u64) -> bool {
        let arena = self.end - ARENA;
        let made = calls.wrapping_sub(self.calls);
        let is_worth = self.misses < made / WORTH;
        self.last_rest = if is_worth {
            0
        } else {
            (self.last_rest * 2).clamp(SHORTEST_REST, LONGEST_REST)
        };
        self.rest = self.last_rest;
        self.limit = arena + if is_worth { ARENA } else { TRIAL };
        (self.misses, self.calls) = (0, calls);
        self.clear();
        miss.matched == 0 && bytes <= self.limit - arena
    }
}

#[cfg(test)]
mod tests;
