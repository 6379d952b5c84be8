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

use abi::segment::RecordHead;

use crate::os::hash::MULTIPLIER;

/// Bytes for runs.
const ARENA: u64 = 1 << 19;
/// Reads that are compared in one turn: the last one of a run is repeated up to a multiple of it.
const UNROLLED: usize = 4;
/// Buckets of the table of runs.
const BUCKETS: u64 = (1 << BUCKET_BITS) + PROBES - 1;
const BUCKET_BITS: u32 = 13;
/// Calls of which not more than one may have been missed between two times of forgetting, for remembering
/// to be worth its price.
const WORTH: u64 = 3;
/// Calls for which nothing is remembered where it is not; twice as many each time in a row.
const SHORTEST_REST: u64 = 1 << 14;
const LONGEST_REST: u64 = 1 << 20;
/// Part of the arena that is filled after a rest, to see whether it has become worth its price.
const TRIAL: u64 = ARENA / 4;
/// Buckets looked at for a key.
pub const PROBES: u64 = 4;

/// How far to the right the number of a key's first bucket is once it has been multiplied.
pub const HASH_SHIFT: u32 = u64::BITS - BUCKET_BITS;

/// Bytes that a thread's remembered walks take.
pub const BYTES: u64 = BUCKETS * size_of::<Entry>() as u64 + ARENA;

/// A word that a walk has read, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Read {
    /// Its address.
    pub at: u64,
    /// Its value.
    pub value: u64,
}

/// A piece of a walk to its end; its reads follow it.
#[repr(C)]
pub struct Run {
    /// After the last read.
    end: *const Read,
    /// Which stack the walk was on, see [`super::outcome::Walk`].
    pub stack: u64,
    /// And the record of the path.
    pub record: *const RecordHead,
    /// Ticks that measuring such a call takes.
    pub cost: u64,
}

/// Where a run begins: a function's slot, or a branch off another run.
#[repr(C)]
pub struct Entry {
    key: Key,
    run: *const Run,
    /// The record of the path if the run's words are equal, for the stub to fetch meanwhile.
    record: *const RecordHead,
}

/// `(slot, epoch and function)` or `(address of a read in its run, value found)`: no slot lies among the runs.
/// All zeros while free.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C)]
struct Key(u64, u64);

/// A function's id, and in the bits above it the epoch: the stub puts the two together likewise.
#[derive(Clone, Copy)]
pub struct InEpoch(u64);

/// A thread's remembered walks, over memory of [`BYTES`].
#[repr(C)]
pub struct Memo {
    /// Its buckets.
    pub table: *mut Entry,
    /// Where the next run goes, up to where they may, and where the arena ends.
    free: u64,
    limit: u64,
    end: u64,
    /// Walks not found since all were forgotten, and the thread's calls by then.
    misses: u64,
    calls: u64,
    /// Calls for which none is remembered nor looked for, and how many those were the last time.
    rest: u64,
    last_rest: u64,
}

/// Where a comparison has failed.
#[derive(Clone, Copy)]
pub struct Miss {
    key: Key,
    /// Reads that were equal, and the one that was not.
    matched: usize,
}

impl Run {
    /// Makes it one that has no word left to compare.
    #[inline(always)]
    pub fn set(&mut self, stack: u64, record: *const RecordHead, cost: u64) {
        // Volatile, see `Entry::set_key`.
        // SAFETY: fields of our own.
        unsafe {
            (&raw mut self.cost).write_volatile(cost);
            (&raw mut self.stack).write_volatile(stack);
            (&raw mut self.record)
                .cast::<u64>()
                .write_volatile(record as u64);
        }
    }
}

/// A run apart from all others, with its reads.
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
    /// Makes it one of so many words, each of which is in it itself.
    pub fn make(&mut self, words: usize, stack: u64, record: *const RecordHead) {
        self.run.set(stack, record, 0);
        for read in &mut self.reads {
            read.at = &raw const read.value as u64;
        }
        self.run.end = self.reads[..words].as_ptr_range().end;
    }

    /// Its beginning.
    pub fn run(&self) -> *const Run {
        (&raw const *self).cast()
    }
}

/// An entry that has been put in the place of another one.
pub struct Replaced {
    place: usize,
    key: Key,
    run: *const Run,
    record: *const RecordHead,
}

impl Read {
    /// Copies one, word by word: see [`Entry::set_key`].
    #[inline(always)]
    unsafe fn put(to: *mut Self, from: &Self) {
        // SAFETY: the caller's promise.
        unsafe {
            (&raw mut (*to).at).write_volatile(from.at);
            (&raw mut (*to).value).write_volatile(from.value);
        }
    }
}

impl Entry {
    /// Volatile: the compiler would take a vector register for two words at once, and those are the
    /// application's where this runs. A jump out in between leaves a key that nothing has: its first word
    /// is 0, which is no slot.
    #[inline(always)]
    fn set_key(&mut self, key: Key) {
        // SAFETY: two fields of our own.
        unsafe {
            (&raw mut self.key.0).write_volatile(0);
            (&raw mut self.key.1).write_volatile(key.1);
            (&raw mut self.key.0).write_volatile(key.0);
        }
    }
}

impl InEpoch {
    /// A function's, in an epoch.
    #[inline(always)]
    pub const fn of(function: u32, epoch: u64) -> Self {
        Self(epoch | function as u64)
    }
}

impl Key {
    #[inline(always)]
    fn place(self, probe: u64) -> usize {
        let mixed = (self.0 ^ self.1.rotate_left(32)).wrapping_mul(MULTIPLIER);
        ((mixed >> HASH_SHIFT) + probe) as usize
    }
}

impl Memo {
    /// Makes zeroed memory a memo that remembers nothing: the runtime's is in the middle of a thread's.
    ///
    /// # Safety
    /// `base` is the address of [`BYTES`] of zeroed memory, aligned to 8, that nobody else uses.
    pub const unsafe fn begin(&mut self, base: u64) {
        self.table = base as *mut Entry;
        self.free = base + BYTES - ARENA;
        self.limit = base + BYTES;
        self.end = base + BYTES;
    }

    /// The run whose reads are equal, for a call of a function, one in this epoch, whose return address is at `slot`.
    ///
    /// # Safety
    /// The stack at `slot` is the calling thread's, and no walk was remembered for that under other rules.
    #[inline(always)]
    pub unsafe fn find(&self, function: InEpoch, slot: u64) -> Result<&Run, Miss> {
        let mut key = Key(slot, function.0);
        let mut matched = 0;
        // SAFETY: runs lie in the arena, each before its reads; what is read of the stack is what
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
            // SAFETY: the place is below BUCKETS.
            let entry = unsafe { &*self.table.add(key.place(probe)) };
            if entry.key == key {
                return Some(entry.run);
            }
        }
        None
    }

    /// Whether remembering is not worth its price now: too few walks have been found again.
    #[inline(always)]
    pub fn is_resting(&self) -> bool {
        self.rest != 0
    }

    /// Counts a call in that time, before which the thread has made `calls`: they tell nothing of what
    /// remembering is worth.
    #[inline(always)]
    pub fn rest(&mut self, calls: u64) {
        self.rest -= 1;
        self.calls = calls;
    }

    /// Remembers a walk that was not found: all its reads, and what it came to. False where there is no
    /// room for it now. The thread has made `calls` in all.
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
            let is_free = |at: &usize| (*self.table.add(*at)).key == Key(0, 0);
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
            let entry = self.table.add(place);
            // A signal handler may jump out of here: no key leads to another's run, nor to none.
            (*entry).set_key(Key(0, 0));
            (&raw mut (*entry).run).write_volatile(run);
            (&raw mut (*entry).record)
                .cast::<u64>()
                .write_volatile(record as u64);
            (*entry).set_key(miss.key);
            true
        }
    }

    /// Has a run found for a call, until what it replaces is put back.
    ///
    /// # Safety
    /// The run is whole, and stays until then.
    pub unsafe fn put(&mut self, slot: u64, function: InEpoch, run: *const Run) -> Replaced {
        let key = Key(slot, function.0);
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
        // An address without memory would take the stub longer to fetch.
        // SAFETY: the caller's promise.
        entry.record = unsafe { (*run).record };
        entry.set_key(key);
        replaced
    }

    /// Ends what [`Memo::put`] began.
    pub fn put_back(&mut self, replaced: Replaced) {
        // SAFETY: as there.
        let entry = unsafe { &mut *self.table.add(replaced.place) };
        entry.run = replaced.run;
        entry.record = replaced.record;
        entry.set_key(replaced.key);
    }

    /// Forgets the walks of a function's calls with their return address at `slot`.
    pub fn forget_call(&mut self, function: InEpoch, slot: u64) {
        let key = Key(slot, function.0);
        for probe in 0..PROBES {
            // SAFETY: the place is below BUCKETS.
            let entry = unsafe { &mut *self.table.add(key.place(probe)) };
            if entry.key == key {
                entry.set_key(Key(0, 0));
            }
        }
    }

    /// Forgets all walks: what they have led to is another thread's.
    pub fn forget_all(&mut self) {
        self.clear();
        (self.rest, self.last_rest, self.misses) = (0, 0, 0);
        self.limit = self.end;
    }

    fn clear(&mut self) {
        for place in 0..BUCKETS as usize {
            // SAFETY: below BUCKETS.
            unsafe {
                (*self.table.add(place)).set_key(Key(0, 0));
            }
        }
        self.free = self.end - ARENA;
    }

    /// Forgets all walks to have room; whether what was missed can be remembered then: a branch has
    /// nothing left to branch off.
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
mod tests {
    use super::*;
    use core::ptr;
    use std::vec;
    use std::vec::Vec;

    const FUNCTION: InEpoch = InEpoch::of(3, 5 << 16);

    /// A stack of words, and what a walk over all of it reads: from the slot upwards.
    struct Stack(Vec<u64>);

    impl Stack {
        fn slot(&self) -> u64 {
            self.0.as_ptr() as u64
        }

        fn reads(&self) -> Vec<Read> {
            let read = |word: &u64| Read {
                at: word as *const u64 as u64,
                value: *word,
            };
            self.0.iter().map(read).collect()
        }
    }

    fn memo() -> (Memo, Vec<u64>) {
        let mut memory = vec![0u64; BYTES as usize / 8];
        let mut memo = Memo {
            table: ptr::null_mut(),
            free: 0,
            limit: 0,
            end: 0,
            misses: 0,
            calls: 0,
            rest: 0,
            last_rest: 0,
        };
        // SAFETY: the memory is zeroed, aligned, and lives as long as the memo.
        unsafe { memo.begin(memory.as_mut_ptr() as u64) };
        (memo, memory)
    }

    /// The record that is remembered for what stands on the stack; it is remembered as `record` where
    /// there is none.
    fn call(memo: &mut Memo, stack: &Stack, record: u64) -> Option<u64> {
        call_as(memo, stack, record, u64::MAX / 2)
    }

    /// The same after `calls` in all.
    fn call_as(memo: &mut Memo, stack: &Stack, record: u64, calls: u64) -> Option<u64> {
        // SAFETY: the stack is the test's own.
        match unsafe { memo.find(FUNCTION, stack.slot()) } {
            Ok(run) => Some(run.record as u64),
            Err(miss) => {
                memo.remember(
                    &miss,
                    &stack.reads(),
                    1,
                    record as *const RecordHead,
                    0,
                    calls,
                );
                None
            }
        }
    }

    #[test]
    fn a_walk_is_found_again_by_its_words_alone() {
        let (mut memo, _memory) = memo();
        let mut stack = Stack(vec![10, 11, 12, 13]);
        assert_eq!(call(&mut memo, &stack, 1), None);
        assert_eq!(call(&mut memo, &stack, 2), Some(1));
        stack.0[2] = 99;
        assert_eq!(call(&mut memo, &stack, 2), None);
        assert_eq!(call(&mut memo, &stack, 3), Some(2));
        // Another branch off the branch, and one where the first word differs.
        stack.0[3] = 98;
        assert_eq!(call(&mut memo, &stack, 3), None);
        stack.0[0] = 97;
        assert_eq!(call(&mut memo, &stack, 4), None);
        for (words, record) in [
            ([10, 11, 12, 13], 1),
            ([10, 11, 99, 13], 2),
            ([10, 11, 99, 98], 3),
            ([97, 11, 99, 98], 4),
        ] {
            stack.0.copy_from_slice(&words);
            assert_eq!(call(&mut memo, &stack, 0), Some(record), "{words:?}");
        }
        // SAFETY: the stack is the test's own.
        let find = |id| unsafe { memo.find(id, stack.slot()) };
        assert!(find(FUNCTION).is_ok());
        assert!(find(InEpoch::of(4, 5 << 16)).is_err(), "another function");
        assert!(find(InEpoch::of(3, 6 << 16)).is_err(), "another epoch");
    }

    /// Whatever has been forgotten by then, an answer is never a wrong one.
    #[test]
    fn many_walks_never_answer_for_each_other() {
        let (mut memo, _memory) = memo();
        let mut stack = Stack(vec![0; 12]);
        let mut seed = 1u64;
        let mut found = 0;
        for _ in 0..300_000 {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            let path = if seed & 1 == 0 {
                seed >> 32 & 0x3f
            } else {
                seed >> 32 & 0xffff
            };
            for (index, word) in stack.0.iter_mut().enumerate() {
                *word = path >> (index % 16);
            }
            let record = path;
            if let Some(known) = call(&mut memo, &stack, record) {
                assert_eq!(known, record);
                found += 1;
            }
        }
        assert!(found > 100_000, "{found}");
    }

    /// Calls that are made until the memo rests, of as many paths in turn, and how long it then does.
    fn rests(memo: &mut Memo, paths: u64, calls: &mut u64) -> Option<u64> {
        let mut stack = Stack(vec![0; 12]);
        for call in 0..300_000 {
            stack.0[0] = call % paths + 1;
            *calls += 1;
            call_as(memo, &stack, 1, *calls);
            if memo.is_resting() {
                return Some(memo.rest);
            }
        }
        None
    }

    #[test]
    fn it_rests_where_walks_are_not_found_again() {
        let (mut memo, _memory) = memo();
        let mut calls = 0;
        assert_eq!(rests(&mut memo, 1000, &mut calls), None);
        for expected in [SHORTEST_REST, 2 * SHORTEST_REST, 4 * SHORTEST_REST] {
            assert_eq!(rests(&mut memo, 100_000, &mut calls), Some(expected));
            for _ in 0..expected {
                assert!(memo.is_resting());
                memo.rest(calls);
                calls += 1;
            }
        }
        assert_eq!(rests(&mut memo, 100, &mut calls), None);
    }

    #[test]
    fn a_walk_larger_than_all_room_is_not_remembered() {
        let (mut memo, _memory) = memo();
        let large = Stack(vec![5; ARENA as usize / 16]);
        assert_eq!(call(&mut memo, &large, 1), None);
        assert_eq!(call(&mut memo, &large, 1), None);
        let small = Stack(vec![5; 4]);
        assert_eq!(call(&mut memo, &small, 2), None);
        assert_eq!(call(&mut memo, &small, 2), Some(2));
    }
}
