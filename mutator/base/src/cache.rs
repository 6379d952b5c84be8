//! Shared values by key, with a bound on those that nothing else uses.

#[cfg(test)]
mod tests;

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

/// A value with shared ownership.
pub trait Shared: Clone {
    /// True if another clone of this value exists.
    fn is_shared(&self) -> bool;
}

impl<T: ?Sized> Shared for Arc<T> {
    fn is_shared(&self) -> bool {
        Arc::strong_count(self) > 1
    }
}

/// A map of shared values that drops the least recently used ones.
///
/// A value is in use while another clone of it exists. It stays that long, so that its key leads to
/// no second copy. Only an insertion drops values, and only if the map has grown to its limit. The
/// limit is the number of values in use at the last drop, plus `most` or that number again,
/// whichever is more.
pub struct Cache<K, V> {
    /// The number of values not in use that the map may hold. It may hold as many as are in use if
    /// that is more.
    most: usize,
    /// The number of entries at which the next insertion drops some.
    limit: usize,
    /// The number of uses so far.
    clock: u64,
    entries: HashMap<K, Entry<V>>,
}

struct Entry<V> {
    value: V,
    /// The cache's clock at the last use of the value.
    used: u64,
}

impl<K: Clone + Eq + Hash, V: Shared> Cache<K, V> {
    /// An empty map that may hold at least `most` values that are not in use.
    pub fn new(most: usize) -> Self {
        Self {
            most,
            limit: most,
            clock: 0,
            entries: HashMap::new(),
        }
    }

    /// The number of values.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if the cache is empty.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The value with this key, which counts as used now. `None` if there is none.
    pub fn get<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.clock += 1;
        let entry = self.entries.get_mut(key)?;
        entry.used = self.clock;
        Some(entry.value.clone())
    }

    /// The value with this key. If there is none, inserts and returns the one that `make` makes.
    ///
    /// # Errors
    /// Those of `make`. Nothing is inserted then.
    pub fn get_or_make<E>(&mut self, key: K, make: impl FnOnce() -> Result<V, E>) -> Result<V, E> {
        if let Some(value) = self.get(&key) {
            return Ok(value);
        }
        let value = make()?;
        self.insert(key, value.clone());
        Ok(value)
    }

    /// Inserts a value, or replaces the one that has this key. If the map is at its limit, this
    /// first drops the least recently used values that are not in use.
    pub fn insert(&mut self, key: K, value: V) {
        if self.entries.len() >= self.limit {
            self.evict();
        }
        self.clock += 1;
        let used = self.clock;
        self.entries.insert(key, Entry { value, used });
    }

    /// Removes the value with this key and returns it. `None` if there is none.
    pub fn remove<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        Some(self.entries.remove(key)?.value)
    }

    /// The keys and values, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.entries.iter().map(|(key, entry)| (key, &entry.value))
    }

    /// The values, in no order.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.entries.values_mut().map(|entry| &mut entry.value)
    }

    /// Drops the least recently used of the values that are not in use until at most three quarters
    /// of `most` remain, so that not every insertion looks through all entries. Sets a new limit.
    fn evict(&mut self) {
        let unused = self.entries.iter();
        let unused = unused.filter(|(_, entry)| !entry.value.is_shared());
        let mut unused: Vec<(u64, K)> = unused
            .map(|(key, entry)| (entry.used, key.clone()))
            .collect();
        unused.sort_unstable_by_key(|&(used, _)| used);
        let kept = self.most - self.most.div_ceil(4);
        let dropped = unused.len().saturating_sub(kept);
        for (_, key) in unused.drain(..dropped) {
            self.entries.remove(&key);
        }
        let in_use = self.entries.len() - unused.len();
        self.limit = in_use.saturating_mul(2).max(in_use + self.most);
    }
}
