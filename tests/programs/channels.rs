//! Three workers receive orders from channels and price them, which takes most of the CPU time. One
//! worker at a time records prices. A reporter repeatedly holds that lock for a while.
//!
//!     channels SECONDS
//!
//! Prints `ready`, and `ok` at its end.
use std::collections::HashMap;
use std::hint::black_box;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

type Prices = Arc<Mutex<HashMap<u64, u64>>>;

#[inline(never)]
fn price(order: u64) -> u64 {
    (0..60_000).fold(order, |sum, n| black_box(sum.wrapping_mul(31) ^ n))
}

#[inline(never)]
fn record(prices: &Prices, order: u64, price: u64) {
    prices.lock().unwrap().insert(order % 100, price);
}

#[inline(never)]
fn handle(prices: &Prices, order: u64) {
    record(prices, order, price(order));
}

fn work(prices: Prices, orders: Receiver<u64>) {
    orders.into_iter().for_each(|order| handle(&prices, order));
}

#[inline(never)]
fn report(prices: &Prices) {
    let held = prices.lock().unwrap();
    thread::sleep(Duration::from_millis(4));
    black_box(held.len());
}

fn main() {
    let seconds = std::env::args().nth(1).and_then(|s| s.parse().ok());
    let end = Instant::now() + Duration::from_secs(seconds.unwrap_or(60));
    let prices = Prices::default();
    let mut senders = Vec::new();
    for _ in 0..3 {
        let (sender, orders) = sync_channel(50);
        let prices = prices.clone();
        thread::spawn(move || work(prices, orders));
        senders.push(sender);
    }
    thread::spawn(move || {
        loop {
            report(&prices);
            thread::sleep(Duration::from_millis(16));
        }
    });
    println!("ready");
    for order in 0.. {
        if Instant::now() >= end {
            break;
        }
        senders[order as usize % 3].send(order).unwrap();
        thread::sleep(Duration::from_micros(900));
    }
    println!("ok");
}
