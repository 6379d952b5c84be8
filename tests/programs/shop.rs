//! A service with long names: a thread looks things up in generic stores, mostly through one slow
//! caller. Runs until its time in seconds is over.

use std::collections::HashMap;
use std::hash::Hash;
use std::hint::black_box;
use std::io::Write;
use std::time::{Duration, Instant};

mod inventory {
    use super::*;

    pub trait Lookup<Key> {
        fn look_up(&self, key: &Key) -> Option<u64>;
    }

    pub struct Store<Key, Value> {
        pub entries: HashMap<Key, Value>,
    }

    impl<Key: Hash + Eq, Value: Copy + Into<u64>> Lookup<Key> for Store<Key, Value> {
        #[inline(never)]
        fn look_up(&self, key: &Key) -> Option<u64> {
            black_box(self.entries.get(key).map(|&value| value.into()))
        }
    }
}

use inventory::{Lookup, Store};

#[inline(never)]
fn price_of_basket(store: &dyn Lookup<String>, names: &[String]) -> u64 {
    names.iter().filter_map(|name| store.look_up(name)).sum()
}

#[inline(never)]
fn recommend_for_everybody(store: &dyn Lookup<String>, names: &[String]) -> u64 {
    let once = |_| names.iter().filter_map(|name| store.look_up(name)).sum::<u64>();
    (0..50).map(once).sum()
}

fn main() {
    let seconds: f64 = std::env::args().nth(1).unwrap().parse().unwrap();
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    let names: Vec<String> = (0..64).map(|n| format!("item number {n}")).collect();
    let named = names.iter().cloned().zip(0_u32..);
    let store = Store { entries: named.collect::<HashMap<String, u32>>() };
    println!("ready");
    std::io::stdout().flush().unwrap();
    let worker = std::thread::spawn(move || {
        let mut sum = 0;
        while Instant::now() < end {
            sum += price_of_basket(&store, &names) + recommend_for_everybody(&store, &names);
            std::thread::sleep(Duration::from_millis(1));
        }
        sum
    });
    println!("ok sum {}", worker.join().unwrap() != 0);
}
