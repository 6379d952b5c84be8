//! Call paths into `release::work` in a program as it is shipped: generics, closures and iterators
//! that the compiler inlines, calls in drops while a panic unwinds, callbacks from C, scoped
//! threads. Prints its own number of calls and a checksum.

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

static CALLS: AtomicU64 = AtomicU64::new(0);

thread_local!(static SEEN: Cell<u64> = const { Cell::new(0) });

unsafe extern "C" {
    fn qsort(
        base: *mut c_void,
        count: usize,
        size: usize,
        compare: extern "C-unwind" fn(*const u64, *const u64) -> c_int,
    );
}

/// The probed function.
#[inline(never)]
pub fn work(n: u64) -> u64 {
    CALLS.fetch_add(1, Relaxed);
    black_box(n.wrapping_mul(31) ^ 5)
}

/// Calls `work` when it is dropped, also by a panic.
struct Last(u64);

impl Drop for Last {
    fn drop(&mut self) {
        SEEN.set(SEEN.get().wrapping_add(work(self.0)));
    }
}

trait Shape {
    fn area(&self) -> u64;
}

struct Square(u64);
struct Several(Vec<Box<dyn Shape>>);

impl Shape for Square {
    fn area(&self) -> u64 {
        work(self.0).wrapping_mul(self.0)
    }
}

impl Shape for Several {
    fn area(&self) -> u64 {
        self.0.iter().map(|shape| shape.area()).fold(1, u64::wrapping_add)
    }
}

fn reduce<T, F: FnMut(T) -> u64>(items: impl IntoIterator<Item = T>, each: F) -> u64 {
    items.into_iter().map(each).fold(0, |sum, n| sum.wrapping_mul(3).wrapping_add(n))
}

fn parse(text: &str) -> Result<u64, std::num::ParseIntError> {
    let _last = Last(text.len() as u64);
    let n: u64 = text.parse()?;
    Ok(work(n))
}

#[inline(never)]
fn unwinds(depth: u64) -> u64 {
    let _last = Last(depth);
    match depth {
        0 => resume_unwind(Box::new(work(0))),
        _ => unwinds(depth - 1) + 1,
    }
}

extern "C-unwind" fn compare(a: *const u64, b: *const u64) -> c_int {
    // SAFETY: qsort passes two of the elements.
    let (a, b) = unsafe { (work(*a), work(*b)) };
    a.cmp(&b) as c_int
}

fn main() {
    let shapes = Several(vec![
        Box::new(Square(3)),
        Box::new(Several(vec![Box::new(Square(4)), Box::new(Square(5))])),
    ]);
    let mut sum = reduce(0..20, |n| work(n) + shapes.area());
    sum = sum.wrapping_add(reduce(["1", "x", "22", ""], |text| parse(text).unwrap_or(7)));
    for depth in 0..6 {
        let caught = catch_unwind(AssertUnwindSafe(|| unwinds(depth)));
        sum = sum.wrapping_add(*caught.unwrap_err().downcast::<u64>().unwrap());
    }
    let mut numbers: Vec<u64> = (0..24).map(|n| n * 7 % 24).collect();
    // SAFETY: the base, number and size of the vector's elements, and a function that compares two.
    unsafe { qsort(numbers.as_mut_ptr().cast(), numbers.len(), size_of::<u64>(), compare) };
    let shared = Arc::new(Mutex::new(HashMap::new()));
    std::thread::scope(|scope| {
        for t in 0..3u64 {
            let shared = Arc::clone(&shared);
            scope.spawn(move || {
                for n in 0..15 {
                    *shared.lock().unwrap().entry(n % 4).or_insert_with(|| work(n)) ^= work(t);
                }
            });
        }
    });
    numbers.sort_by_cached_key(|&n| std::cmp::Reverse(work(n)));
    sum = numbers.iter().fold(sum, |sum, n| sum.wrapping_mul(5).wrapping_add(*n));
    println!("calls {} seen {} sum {sum}", CALLS.load(Relaxed), SEEN.get());
}
