//! Distributions compared with lists of the values themselves.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

/// The statistics as the runtime records them.
fn recorded(values: &[i64]) -> TimerStats {
    let mut stats = TimerStats {
        sum: values.iter().map(|&v| i128::from(v)).sum(),
        min: values.iter().copied().min().unwrap_or(0),
        max: values.iter().copied().max().unwrap_or(0),
        ..TimerStats::default()
    };
    let mut sorted = values.to_vec();
    sorted.sort_by_key(|v| v.unsigned_abs());
    for v in sorted {
        let k = v.unsigned_abs().max(1).ilog2() as u8;
        let hist = if v < 0 {
            &mut stats.hist_negative
        } else {
            &mut stats.hist
        };
        match hist.last_mut().filter(|last| last.0 == k) {
            Some(last) => last.1 += 1,
            None => hist.push((k, 1)),
        }
    }
    stats
}

/// Sign and power of two: equal for values of the same bucket only.
fn place(value: i128) -> (bool, u32) {
    (value < 0, value.unsigned_abs().max(1).ilog2())
}

/// The smallest value that at least `per_mille` thousandths of the values do not exceed.
fn quantile(values: &[i64], per_mille: u32) -> i64 {
    let enough = |v: i64| {
        let held = values.iter().filter(|&&other| other <= v).count() as u128;
        held * 1000 >= values.len() as u128 * u128::from(per_mille)
    };
    let all = values.iter().copied();
    all.filter(|&v| enough(v)).min().expect("a value")
}

fn deviation(values: &[i64]) -> f64 {
    let n = values.len() as f64;
    let least = values.iter().copied().min().unwrap_or(0);
    let apart = |v: i64| (i128::from(v) - i128::from(least)) as f64;
    let mean = values.iter().map(|&v| apart(v)).sum::<f64>() / n;
    let squares = values.iter().map(|&v| (apart(v) - mean).powi(2));
    (squares.sum::<f64>() / n).sqrt()
}

/// The root mean square of the widths of the values' buckets, clipped to the range from minimum to
/// maximum.
fn widths(values: &[i64]) -> f64 {
    let min = values.iter().copied().min().map_or(0, i128::from);
    let max = values.iter().copied().max().map_or(0, i128::from);
    let width = |v: i64| {
        let size = i128::from(v.unsigned_abs().max(1));
        let low = 1i128 << size.ilog2();
        let (low, high) = match (v, low) {
            (0 | 1, _) => (0, 1),
            (v, low) if v < 0 => (1 - 2 * low, -low),
            (_, low) => (low, 2 * low - 1),
        };
        (high.clamp(min, max) - low.clamp(min, max)) as f64
    };
    let squares = values.iter().map(|&v| width(v).powi(2));
    (squares.sum::<f64>() / values.len() as f64).sqrt()
}

/// Values of all sizes: single ones, equal ones, zeroes, heavy tails.
fn lists() -> impl Strategy<Value = Vec<i64>> {
    let tail = (0u32..63, any::<i64>()).prop_map(|(shift, v)| v.wrapping_shr(shift));
    prop_oneof![
        vec(0i64..10, 1..50),
        vec(-20i64..20, 1..50),
        vec(1_000i64..1_000_000, 1..200),
        vec(tail.clone().prop_map(|v| v.saturating_abs()), 1..300),
        vec(tail, 1..300),
        (any::<i64>(), 1usize..50).prop_map(|(v, n)| vec![v; n]),
        vec(prop_oneof![9 => Just(100i64), 1 => any::<i64>()], 1..300),
    ]
}

proptest! {
    #[test]
    fn quantiles_lie_in_the_bucket_of_the_true_value(values in lists(), other in 1u32..=1000) {
        let stats = recorded(&values);
        prop_assert_eq!(stats.values(), values.len() as u64);
        let all = Distribution::of(&stats);
        for per_mille in [500, 900, 990, 999, 1000, other] {
            let found = all.quantile(per_mille).expect("a value");
            let truth = quantile(&values, per_mille);
            prop_assert_eq!(place(found), place(truth.into()), "{} and {}", found, truth);
            prop_assert!(i128::from(stats.min) <= found && found <= stats.max.into());
        }
        prop_assert_eq!(all.quantile(1000), Some(stats.max.into()));
    }

    #[test]
    fn quantiles_of_values_in_two_parts_are_those_of_all(a in lists(), b in lists()) {
        let mut parts = Distribution::of(&recorded(&a));
        parts.add(&recorded(&b));
        let all = Distribution::of(&recorded(&[&a[..], &b].concat()));
        prop_assert_eq!(&parts, &all);
        // The minimum and the maximum of the later values are not known.
        let later = all.since(&Distribution::of(&recorded(&a)));
        prop_assert_eq!(later.count(), b.len() as u64);
        prop_assert_eq!(later.sum(), b.iter().map(|&v| i128::from(v)).sum::<i128>());
        for per_mille in [1, 500, 990] {
            let found = later.quantile(per_mille).expect("a value");
            prop_assert_eq!(place(found), place(quantile(&b, per_mille).into()));
        }
    }

    #[test]
    fn the_deviation_is_off_by_no_more_than_buckets_are_wide(values in lists()) {
        let found = Distribution::of(&recorded(&values)).deviation().expect("a value");
        let (truth, bound) = (deviation(&values), widths(&values));
        let rounding = 1e-9 * (truth + bound) + 1e-6;
        prop_assert!((found - truth).abs() <= bound + rounding, "{found}, not {truth}, {bound}");
    }
}

/// Numbers in (0, 1), the same in each run.
fn uniform(n: usize) -> impl Iterator<Item = f64> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        ((state >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    })
    .take(n)
}

fn normal(u: f64, v: f64) -> f64 {
    (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
}

/// The errors that docs/reference/statistics.md states.
#[test]
fn the_deviation_of_smooth_values_is_close_where_they_fill_many_buckets() {
    type Shape = fn(f64, f64) -> f64;
    let over_many_buckets: [(&str, Shape); 5] = [
        ("uniform", |u, _| 1e6 * u),
        ("uniform, not from 0", |u, _| 3e5 + 1e6 * u),
        ("exponential", |u, _| -1e5 * u.ln()),
        ("Pareto, a = 3", |u, _| 1e4 * u.powf(-1.0 / 3.0)),
        ("log-normal", |u, v| 1e5 * normal(u, v).exp()),
    ];
    let within_few: [(&str, Shape); 3] = [
        ("normal in one bucket", |u, v| 96e3 + 3e3 * normal(u, v)),
        ("normal in two buckets", |u, v| 65e3 + 6e3 * normal(u, v)),
        ("normal in three", |u, v| 96e3 + 15e3 * normal(u, v)),
    ];
    let of = |shape: Shape| {
        let numbers: Vec<f64> = uniform(40_000).collect();
        let pairs = numbers.chunks_exact(2);
        let values: Vec<i64> = pairs.map(|pair| shape(pair[0], pair[1]) as i64).collect();
        let found = Distribution::of(&recorded(&values)).deviation();
        found.expect("a value") / deviation(&values)
    };
    for (name, shape) in over_many_buckets {
        let ratio = of(shape);
        assert!((0.9..1.1).contains(&ratio), "{name}: {ratio}");
    }
    for (name, shape) in within_few {
        let ratio = of(shape);
        assert!((0.9..2.6).contains(&ratio), "{name}: {ratio}");
    }
}

#[test]
fn what_is_exact_stays_so() {
    for values in [
        &[7i64][..],
        &[7, 7, 7],
        &[0],
        &[0, 0],
        &[-5],
        &[i64::MIN],
        &[i64::MAX, i64::MAX],
    ] {
        let all = Distribution::of(&recorded(values));
        let value = i128::from(values[0]);
        assert_eq!(all.quantile(500), Some(value), "{values:?}");
        assert_eq!(
            (all.deviation(), all.mean()),
            (Some(0.0), Some(value as f64))
        );
    }
    let two = Distribution::of(&recorded(&[100, 1_000_000]));
    assert_eq!(
        (two.quantile(500), two.quantile(501)),
        (Some(100), Some(1_000_000))
    );
    assert_eq!(two.deviation(), Some(499_950.0));
    let none = Distribution::default();
    assert_eq!(
        (none.quantile(500), none.mean(), none.deviation()),
        (None, None, None)
    );
    assert_eq!(Distribution::of(&TimerStats::default()), none);
}

/// A path without memory for a histogram: all values are in the bucket of the first one.
#[test]
fn what_was_not_placed_has_no_quantiles() {
    let values = [10, 20, 3_000];
    let lost = TimerStats {
        hist: vec![(3, 3)],
        ..recorded(&values)
    };
    let mut all = Distribution::of(&lost);
    assert_eq!((all.count(), all.mean()), (3, Some(1010.0)));
    assert_eq!((all.quantile(500), all.deviation()), (None, None));
    all.add(&recorded(&[5]));
    assert_eq!(
        (all.count(), all.sum(), all.quantile(500)),
        (4, 3_035, None)
    );
    let before = Distribution::of(&recorded(&[10, 20]));
    let since = Distribution::of(&lost).since(&before);
    assert_eq!(
        (since.count(), since.sum(), since.quantile(500)),
        (1, 3_000, None)
    );
    // Rounding in the clock's unit has moved a value to the next bucket.
    let rounded = TimerStats {
        hist: vec![(9, 3)],
        ..recorded(&[512, 512, 1024])
    };
    assert!(Distribution::of(&rounded).is_known());
}

#[test]
fn buckets_are_next_to_each_other() {
    let first = Bucket(-1 - 63);
    assert_eq!(first.most(), i128::from(i64::MIN));
    let mut bucket = first;
    while bucket < Bucket(63) {
        assert_eq!(bucket.most() + 1, bucket.next().least(), "{bucket:?}");
        bucket = bucket.next();
    }
    assert_eq!(first.up_to(bucket), 127);
    // No program records this.
    let absurd = TimerStats {
        hist: vec![(255, u64::MAX), (0, 1)],
        ..TimerStats::default()
    };
    assert_eq!(Distribution::of(&absurd).quantile(500), Some(0));
}

proptest! {
    #[test]
    fn what_is_set_is_what_is_added_to_nothing(
        values in prop::collection::vec(-5_000i64..5_000, 0..40),
        before in prop::collection::vec(0i64..100, 0..5),
    ) {
        for values in [values.clone(), values.iter().map(|v| v.abs()).collect()] {
            let stats = recorded(&values);
            let mut set = Distribution::of(&recorded(&before));
            set.set(&stats);
            let (a, b) = (set, Distribution::of(&stats));
            prop_assert_eq!((a.buckets(), a.sum(), a.ends()), (b.buckets(), b.sum(), b.ends()));
            let mut gathered = super::Gathered::default();
            gathered.add(&b);
            gathered.add(&a);
            let mut merged = b.clone();
            merged.merge(&b);
            prop_assert_eq!(gathered.all(), merged);
        }
    }
}
