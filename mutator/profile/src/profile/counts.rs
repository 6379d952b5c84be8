//! `count` beside a map of timers, as one JSON object that keeps the order of the metrics.
//!
//! Not `serde(flatten)`: that buffers, and the buffer holds no 128-bit integer.

use serde::de::{Error, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::sync::Arc;

/// The name of the metric that is always there.
pub const COUNT: &str = "count";

/// Calls and what they cost: `{"count": 10, "wall": {…}, …}`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Activations entered.
    pub count: u64,
    /// Every other metric.
    pub timers: Timers,
}

/// Metrics by name, in the order of `Profile::metrics`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timers(Vec<(Arc<str>, TimerStats)>);

impl Timers {
    /// What was measured of `metric`.
    pub fn get(&self, metric: &str) -> Option<&TimerStats> {
        self.iter()
            .find(|(name, _)| *name == metric)
            .map(|(_, stats)| stats)
    }

    /// What stands under `metric`, put there where nothing does.
    pub(crate) fn entry(&mut self, metric: &str) -> &mut TimerStats {
        let at = self.0.iter().position(|(name, _)| **name == *metric);
        let at = at.unwrap_or_else(|| {
            self.insert(metric, TimerStats::default());
            self.0.len() - 1
        });
        &mut self.0[at].1
    }

    /// Puts `stats` under `metric`, in place of what stands there or at the end.
    pub fn insert(&mut self, metric: impl Into<Arc<str>>, stats: TimerStats) {
        let metric = metric.into();
        match self.0.iter_mut().find(|(name, _)| *name == metric) {
            Some(entry) => entry.1 = stats,
            None => self.0.push((metric, stats)),
        }
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &TimerStats)> {
        self.0.iter().map(|(name, stats)| (&**name, stats))
    }

    /// The same without their names.
    pub fn stats(&self) -> impl Iterator<Item = &TimerStats> {
        self.0.iter().map(|(_, stats)| stats)
    }

    /// The same, to be changed.
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

/// One timer, counter or value over a number of activations.
///
/// Durations, counters and `ret` are those of closed activations; `argN` is that of every call. A metric that was
/// added later has none of the calls before. Where there is no value yet, all numbers are 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimerStats {
    /// The sum, recursion included each time.
    pub sum: i128,
    /// The smallest.
    pub min: i64,
    /// The largest.
    pub max: i64,
    /// The share of `sum` of activations that are not inside another of the same function;
    /// none for values such as `arg1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outermost: Option<i128>,
    /// The share of `sum` that was not spent in a nested activation of a probed function;
    /// none for values such as `arg1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclusive: Option<i128>,
    /// `(k, n)`: n of them lie in [2^k, 2^(k+1)) of the metric's unit, ascending by k;
    /// k = 0 takes 0, too. Empty where no histogram is kept, as in totals.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hist: Vec<(u8, u64)>,
    /// The same of those that are negative, by what they are without their sign.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hist_negative: Vec<(u8, u64)>,
}

impl TimerStats {
    /// Adds the activations of `other`; `first` says that nothing has been added so far, so that
    /// the extremes of an empty `self` do not count. Histograms are added only where both have one.
    pub(crate) fn absorb(&mut self, other: &Self, first: bool) {
        self.absorb_sums(other, first);
        add_buckets(&mut self.hist, &other.hist);
        add_buckets(&mut self.hist_negative, &other.hist_negative);
    }

    /// The same of all but the histograms.
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

    /// How many values the histograms hold.
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

/// The sum over the paths of one function.
#[derive(Clone, Debug, PartialEq)]
pub struct FunctionTotals {
    /// The calls and the timers.
    pub counts: Counts,
    /// Activations that ended by an exception or longjmp; none where exits are not patched.
    pub unwound: Option<u64>,
    /// Activations that still run; none where exits are not patched.
    pub open: Option<u64>,
}

/// True if every call has a value of this metric from its entry on.
pub(super) fn is_argument(metric: &str) -> bool {
    let number = metric.strip_prefix("arg").map(str::parse::<u8>);
    number.is_some_and(|n| n.is_ok())
}

/// Activations that were seen to close normally: 0 where no exit is patched, and none where more ended
/// otherwise than there were.
pub(super) fn closed(count: u64, unwound: Option<u64>, open: Option<u64>) -> Option<u64> {
    if unwound.or(open).is_none() {
        return Some(0);
    }
    count
        .checked_sub(unwound.unwrap_or(0))?
        .checked_sub(open.unwrap_or(0))
}

fn sum_of(a: Option<i128>, b: Option<i128>) -> Option<i128> {
    match (a, b) {
        (None, None) => None,
        (a, b) => Some(a.unwrap_or(0).saturating_add(b.unwrap_or(0))),
    }
}

// An absent `unwound` or `open` is 0; an explicit null says that no exit is patched.
pub(super) fn zero() -> Option<u64> {
    Some(0)
}

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

/// Reads either object; `ends` says whether `unwound` and `open` may stand in it.
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
                        "metric `{key}` stands twice"
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
