//! Calls functions of Rust's library that compute, in one thread.

use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::hint::black_box;

#[inline(never)]
fn numbers() -> u64 {
    let mut sum = 0;
    for n in (-40..400).step_by(7) {
        let text = format!("{:e} {:.3} {n:#x} {n:>8}", f64::from(n) * 1.37e5, f64::from(n) / 7.0);
        let back = text.split(' ').next().and_then(|word| word.parse::<f64>().ok());
        sum += back.unwrap_or(0.5).to_bits() ^ text.len() as u64;
        sum = sum.wrapping_add(format!("{:?}", text.parse::<i32>()).len() as u64);
        sum = sum.wrapping_mul(31);
    }
    sum
}

#[inline(never)]
fn words() -> u64 {
    let text = "the quick brown fox jumps over lazy dogs, € ".repeat(4);
    let mut words: Vec<String> = text.split_whitespace().map(str::to_uppercase).collect();
    words.sort();
    words.sort_unstable_by_key(|word| word.len());
    words.dedup();
    let found = text.find("lazy").unwrap_or(0) + text.rfind("fox").unwrap_or(0);
    let other = text.replace("quick", "slow").chars().rev().collect::<String>();
    format!("{words:?} {found} {other:?} {}", other.to_lowercase()).len() as u64
}

#[inline(never)]
fn collections() -> u64 {
    let mut map = BTreeMap::new();
    let mut heap = BinaryHeap::new();
    let mut queue = VecDeque::new();
    let mut state = 12345_u32;
    for turn in 0..300 {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        map.insert(state % 500, turn);
        heap.push(state >> 7);
        queue.push_front(state);
        if turn % 3 == 0 {
            map.remove(&(state % 250));
            heap.pop();
            queue.pop_back();
        }
    }
    let set: BTreeSet<u32> = queue.iter().map(|n| n % 64).collect();
    let mut sorted: Vec<u32> = queue.into_iter().collect();
    sorted.sort_unstable();
    let sum: u64 = map.range(100..400).map(|(k, v)| u64::from(k * v)).sum();
    sum + set.len() as u64 + u64::from(heap.into_sorted_vec()[9]) + u64::from(sorted[50])
}

fn main() {
    println!("ok {} {} {}", black_box(numbers()), black_box(words()), black_box(collections()));
}
