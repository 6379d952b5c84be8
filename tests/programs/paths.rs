//! Call paths into `paths::work`: closures, dyn traits, generics, iterators, recursion, threads,
//! and a panic caught outside. Prints its own number of calls and a checksum.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

static CALLS: AtomicU64 = AtomicU64::new(0);

#[inline(never)]
fn step(n: u64) -> u64 {
    assert!(n != 1_000_000, "the one forbidden argument");
    black_box(n.wrapping_mul(31) ^ 5)
}

/// The probed function.
#[inline(never)]
pub fn work(n: u64) -> u64 {
    CALLS.fetch_add(1, Relaxed);
    step(n) + 1
}

trait Visit {
    fn visit(&self, n: u64) -> u64;
}

struct Leaf;
struct Chain(Box<dyn Visit>, u64);

impl Visit for Leaf {
    #[inline(never)]
    fn visit(&self, n: u64) -> u64 {
        work(n).rotate_left(3)
    }
}

impl Visit for Chain {
    #[inline(never)]
    fn visit(&self, n: u64) -> u64 {
        self.0.visit(n + self.1) ^ work(n)
    }
}

#[inline(never)]
fn apply<F: Fn(u64) -> u64>(f: F, n: u64) -> u64 {
    f(n) + 1
}

#[inline(never)]
fn apply_dyn(f: &dyn Fn(u64) -> u64, n: u64) -> u64 {
    f(n) + 2
}

#[inline(never)]
fn down(n: u64) -> u64 {
    if n == 0 { work(0) + 1 } else { down(n - 1).wrapping_add(work(n)) }
}

#[inline(never)]
fn all(visitor: &dyn Visit, n: u64) -> u64 {
    let mut sum = visitor.visit(n);
    sum = sum.wrapping_add(apply(|k| work(k + n) * 2, n));
    sum = sum.wrapping_add(apply_dyn(&|k| apply(|j| work(j ^ k), k) + work(k), n));
    sum.wrapping_add((0..n % 5).map(|k| work(k)).fold(0, u64::wrapping_add))
}

fn chain(length: u64) -> Box<dyn Visit> {
    (0..length).fold(Box::new(Leaf), |inner: Box<dyn Visit>, n| Box::new(Chain(inner, n)))
}

fn main() {
    std::panic::set_hook(Box::new(|_| {}));
    let threads: Vec<_> = (0..3u64)
        .map(|t| {
            std::thread::spawn(move || {
                let visitor = chain(t + 1);
                (0..20).fold(t, |sum, n| sum.wrapping_add(all(&*visitor, n)))
            })
        })
        .collect();
    let mut sum = down(30);
    for thread in threads {
        sum = sum.wrapping_mul(7).wrapping_add(thread.join().unwrap());
    }
    let mut keys: Vec<u64> = (0..12).map(|n| n * 7 % 12).collect();
    keys.sort_by_key(|&n| work(n));
    let map: BTreeMap<u64, u64> = keys.iter().map(|&n| (work(n), n)).collect();
    sum = map.into_iter().fold(sum, |sum, (k, v)| sum.wrapping_mul(3).wrapping_add(k ^ v));
    let panicked = (0..4)
        .filter(|n| std::panic::catch_unwind(|| work(999_999 + n % 2)).is_err())
        .count();
    println!("calls {} panicked {panicked} sum {sum}", CALLS.load(Relaxed));
}
