use super::*;
use core::ptr;
use std::vec;
use std::vec::Vec;

const FUNCTION: InEpoch = InEpoch::of(3, 5 << 16);

/// A stack of words, and the reads of a walk over all of it, from the slot upwards.
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
    // SAFETY: the memory is zeroed, aligned, and outlives the cache.
    unsafe { memo.begin(memory.as_mut_ptr() as u64) };
    (memo, memory)
}

/// The cached record for the words on the stack. If there is none, caches `record` for them.
fn call(memo: &mut Memo, stack: &Stack, record: u64) -> Option<u64> {
    call_as(memo, stack, record, u64::MAX / 2)
}

/// As `call`, after `calls` calls in all.
fn call_as(memo: &mut Memo, stack: &Stack, record: u64, calls: u64) -> Option<u64> {
    // SAFETY: the stack belongs to the test.
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
    // SAFETY: the stack belongs to the test.
    let find = |id| unsafe { memo.find(id, stack.slot()) };
    assert!(find(FUNCTION).is_ok());
    assert!(find(InEpoch::of(4, 5 << 16)).is_err(), "another function");
    assert!(find(InEpoch::of(3, 6 << 16)).is_err(), "another epoch");
}

/// A lookup never finds a wrong walk, whatever has been forgotten.
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

/// The number of calls until the cache pauses, with calls cycling over `paths` paths, and the
/// length of the pause.
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
