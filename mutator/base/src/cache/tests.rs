//! What a cache drops, and what it keeps.

use std::sync::Arc;

use super::Cache;

fn value(n: u32) -> Result<Arc<u32>, ()> {
    Ok(Arc::new(n))
}

#[test]
fn the_least_recently_used_go() {
    let mut cache = Cache::new(4);
    for n in 0..4 {
        cache.insert(n, Arc::new(n));
    }
    assert_eq!(cache.get(&0).as_deref(), Some(&0));
    cache.insert(4, Arc::new(4));
    assert_eq!(cache.get(&1), None);
    assert!([0, 2, 3, 4].iter().all(|n| cache.get(n).is_some()));
}

#[test]
fn the_number_of_values_stays_at_the_bound() {
    let mut cache = Cache::new(16);
    for n in 0..10_000 {
        cache.insert(n, Arc::new(n));
        assert!(cache.len() <= 16);
    }
}

#[test]
fn values_in_use_stay_and_do_not_count() {
    let mut cache = Cache::new(4);
    let held: Vec<Arc<u32>> = (0..100)
        .map(|n| cache.get_or_make(n, || value(n)).expect("made"))
        .collect();
    for n in 1000..2000 {
        cache.insert(n, Arc::new(n));
        assert!(cache.len() <= 200 + 4, "{} values", cache.len());
    }
    for (n, held) in (0..).zip(&held) {
        let again = cache.get(&n).expect("in use");
        assert!(Arc::ptr_eq(&again, held));
    }
    drop(held);
    for n in 2000..2300 {
        cache.insert(n, Arc::new(n));
    }
    assert!(cache.len() <= 8, "{} values", cache.len());
}

#[test]
fn what_cannot_be_made_is_not_kept() {
    let mut cache: Cache<u32, Arc<u32>> = Cache::new(4);
    assert_eq!(cache.get_or_make(1, || Err("no")), Err("no"));
    assert!(cache.is_empty());
    cache.insert(1, Arc::new(1));
    assert_eq!(cache.remove(&1).as_deref(), Some(&1));
    assert!(cache.is_empty());
}
