//! `count` and a map of timers, as one JSON object that keeps the order of the metrics.
//!
//! `serde(flatten)` is not an option: its buffer cannot hold 128-bit integers.

use serde::de::{Error, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::sync::Arc;

/// The name of the metric that every profile has.
pub const COUNT: &str = "count";

/// The name of the metric of elapsed time.
pub const WALL: &str = "wall";

/// The number of calls and their cost: `{"count": 10, "wall": {…}, …}`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// The number of calls (activations entered).
    pub count: u64,
    /// The metrics other than the count.
    pub timers: Timers,
}

/// Metrics by name, in the order of `Profile::metrics`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timers(Vec<(Arc<str>, TimerStats)>);

impl Timers {
    /// The values of `metric`. `None` if it was not measured.
    pub fn get(&self, metric: &str) -> Option<&TimerStats> {
        self.iter()
            .find(|(name, _)| *name == metric)
            .map(|(_, stats)| stats)
    }

    /// The values of `metric`, inserted as empty if they are missing.
    pub(crate) fn entry(&mut self, metric: &str) -> &mut TimerStats {
        let at = self.0.iter().position(|(name, _)| **name == *metric);
        let at = at.unwrap_or_else(|| {
            self.insert(metric, TimerStats::default());
            self.0.len() - 1
        });
        &mut self.0[at].1
    }

    /// Sets the values of `metric`, or appends them if they are missing.
    pub fn insert(&mut self, metric: impl Into<Arc<str>>, stats: TimerStats) {
        let metric = metric.into();
        match self.0.iter_mut().find(|(name, _)| *name == metric) {
            Some(entry) => entry.1 = stats,
            None => self.0.push((metric, stats)),
        }
    }

    /// The metrics except `count`, each with its values, in the order of the profile.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &TimerStats)> {
        self.0.iter().map(|(name, stats)| (&**name, stats))
    }

    /// The values of the metrics except `count`, in the order of the metrics.
    pub fn stats(&self) -> impl Iterator<Item = &TimerStats> {
        self.0.iter().map(|(_, stats)| stats)
    }

    /// The values of the metrics except `count`, mutable, in the order of the metrics.
    pub fn stats_mut(&mut self) -> impl Iterator<Item = &mut TimerStats> {
        self.0.iter_mut().map(|(_, stats)| stats)
    }
}

impl<N: Into<Arc<str>>> FromIterator<(N, TimerStats)> for Timers {
    fn from_iter<I: IntoIterator<Item = (N, TimerStats)>>(entries: I) -> Self {
        let entries = entries.into_iter();
        let mut timers = Self(Vec::with_capacity(entries.size_hint().0));
        for (name, stats) in entries {
            timers.insert(name, stats);
        }
        timers
    }
}

/// The values of one timer, counter or argument over a number of activations, in the unit of the
/// metric.
///
/// Durations, counters and `ret` have one value for each closed activation; `argN` has one for each
/// call. A metric that was added later has no values of earlier calls. If there are no values, all
/// numbers are 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimerStats {
    /// The sum of all values, in the metric's unit. Nested activations of a recursive function
    /// count each time.
    pub sum: i128,
    /// The smallest value, in the metric's unit.
    pub min: i64,
    /// The largest value, in the metric's unit.
    pub max: i64,
    /// The part of `sum` from activations that are not nested in another activation of the same
    /// function. `None` for values such as `arg1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outermost: Option<i128>,
    /// The part of `sum` that was not spent in a nested activation of a probed function. `None` for
    /// values such as `arg1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclusive: Option<i128>,
    /// The histogram: `(k, n)` for n values in [2^k, 2^(k+1)), ascending by k. 0 is in k = 0. Empty
    /// if no histogram is kept, as in totals.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hist: Vec<(u8, u64)>,
    /// The histogram of the negative values, by their magnitude.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hist_negative: Vec<(u8, u64)>,
}

impl TimerStats {
    /// Adds the values of `other`. `first` must be true if `self` is empty, because the extremes of
    /// an empty `self` do not count. Adds the histograms, too.
    pub(crate) fn absorb(&mut self, other: &Self, first: bool) {
        self.absorb_sums(other, first);
        add_buckets(&mut self.hist, &other.hist);
        add_buckets(&mut self.hist_negative, &other.hist_negative);
    }

    /// Adds the values of `other`, except the histograms. `first` must be true if `self` is empty.
    pub fn absorb_sums(&mut self, other: &Self, first: bool) {
        self.sum = self.sum.saturating_add(other.sum);
        self.min = if first {
            other.min
        } else {
            self.min.min(other.min)
        };
        self.max = if first {
            other.max
        } else {
            self.max.max(other.max)
        };
        self.outermost = sum_of(self.outermost, other.outermost);
        self.exclusive = sum_of(self.exclusive, other.exclusive);
    }

    /// The number of values in the histograms. 0 if no histogram is kept.
    pub fn values(&self) -> u64 {
        let buckets = self.hist.iter().chain(&self.hist_negative);
        buckets.fold(0, |sum, &(_, n)| sum.saturating_add(n))
    }
}

fn add_buckets(sum: &mut Vec<(u8, u64)>, more: &[(u8, u64)]) {
    for &(k, n) in more {
        match sum.binary_search_by_key(&k, |&(k, _)| k) {
            Ok(at) => sum[at].1 = sum[at].1.saturating_add(n),
            Err(at) => sum.insert(at, (k, n)),
        }
    }
}

/// The sums over the paths of one function.
#[derive(Clone, Debug, PartialEq)]
pub struct FunctionTotals {
    /// The calls of the function and the other metrics.
    pub counts: Counts,
    /// The number of activations that ended by an exception or longjmp. `None` if exits are not
    /// patched.
    pub unwound: Option<u64>,
    /// The number of activations that are still running. `None` if exits are not patched.
    pub open: Option<u64>,
}

/// True if the metric is an argument (`argN`): calls have a value of it from their entry on.
pub(super) fn is_argument(metric: &str) -> bool {
    let number = metric.strip_prefix("arg").map(str::parse::<u8>);
    number.is_some_and(|n| n.is_ok())
}

/// The number of activations that closed normally. 0 if no exit is patched; `None` if more
/// activations ended otherwise than were entered.
pub(super) fn closed(count: u64, unwound: Option<u64>, open: Option<u64>) -> Option<u64> {
    if unwound.or(open).is_none() {
        return Some(0);
    }
    count
        .checked_sub(unwound.unwrap_or(0))?
        .checked_sub(open.unwrap_or(0))
}

/// The sum of the known numbers. `None` if neither is known.
fn sum_of(a: Option<i128>, b: Option<i128>) -> Option<i128> {
    match (a, b) {
        (None, None) => None,
        (a, b) => Some(a.unwrap_or(0).saturating_add(b.unwrap_or(0))),
    }
}

/// The value of a missing `unwound` or `open`: 0. An explicit null means that no exit is patched.
pub(super) fn zero() -> Option<u64> {
    Some(0)
}

/// True if the number is left out of the JSON: 0, but not `None`.
pub(super) fn is_zero(n: &Option<u64>) -> bool {
    *n == Some(0)
}

const UNWOUND: &str = "unwound";
const OPEN: &str = "open";

impl Serialize for Counts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry(COUNT, &self.count)?;
        for (name, stats) in self.timers.iter() {
            map.serialize_entry(name, stats)?;
        }
        map.end()
    }
}

impl Serialize for FunctionTotals {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry(COUNT, &self.counts.count)?;
        for (key, n) in [(UNWOUND, &self.unwound), (OPEN, &self.open)] {
            if !is_zero(n) {
                map.serialize_entry(key, n)?;
            }
        }
        for (name, stats) in self.counts.timers.iter() {
            map.serialize_entry(name, stats)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Counts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let all = deserializer.deserialize_map(Object { ends: false })?;
        Ok(all.counts)
    }
}

impl<'de> Deserialize<'de> for FunctionTotals {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Object { ends: true })
    }
}

/// Reads the object of [`Counts`] or of [`FunctionTotals`]. `ends` is true for the latter, in which
/// `unwound` and `open` may occur.
struct Object {
    ends: bool,
}

impl<'de> Visitor<'de> for Object {
    type Value = FunctionTotals;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with `count` and metrics")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<FunctionTotals, A::Error> {
        let mut count = None;
        let (mut unwound, mut open) = (zero(), zero());
        let mut timers = Timers::default();
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                COUNT => count = Some(map.next_value()?),
                UNWOUND if self.ends => unwound = map.next_value()?,
                OPEN if self.ends => open = map.next_value()?,
                _ if timers.get(&key).is_some() => {
                    return Err(A::Error::custom(format_args!(
                        "metric `{key}` appears twice"
                    )));
                }
                _ => timers.insert(key, map.next_value()?),
            }
        }
        let count = count.ok_or_else(|| A::Error::missing_field(COUNT))?;
        Ok(FunctionTotals {
            counts: Counts { count, timers },
            unwound,
            open,
        })
    }
}
