//! Functions that are inlined everywhere, and count their own executions: ROUNDS
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

static ENTERED: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

#[inline(never)]
fn leaf(x: u64) -> u64 {
    black_box(x) + 1
}

#[inline(always)]
fn mixed(x: u64) -> u64 {
    ENTERED[0].fetch_add(1, Relaxed);
    if x % 2 == 0 { leaf(x) } else { leaf(x + 1) * 3 }
}

#[inline(always)]
fn summed(n: u64) -> u64 {
    ENTERED[1].fetch_add(1, Relaxed);
    let mut sum = 0;
    for i in 0..n {
        sum += leaf(i);
    }
    sum
}

#[inline(never)]
fn mixes(x: u64) -> u64 {
    leaf(x) + mixed(x)
}

#[inline(never)]
fn sums(x: u64) -> u64 {
    let sum = leaf(x) + summed(x % 5);
    leaf(sum)
}

fn main() {
    let rounds = std::env::args().nth(1).expect("ROUNDS").parse().expect("a number");
    let mut sum: u64 = 0;
    for i in 0..rounds {
        sum = sum.wrapping_add(mixes(i)).wrapping_add(sums(i));
    }
    black_box(sum);
    for (name, of) in ["mixed", "summed"].iter().zip(&ENTERED) {
        println!("{name} {} 0 0", of.load(Relaxed));
    }
}
