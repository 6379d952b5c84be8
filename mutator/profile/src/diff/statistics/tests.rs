//! Calibration and power, with simulated latencies in histograms like those of the runtime.

use super::*;
use crate::profile::TimerStats;

/// splitmix64 (Steele and others 2014).
struct Random(u64);

impl Random {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Box and Muller 1958.
    fn normal(&mut self) -> f64 {
        let (u, v) = (1.0 - self.uniform(), self.uniform());
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }

    /// Calls of a log-normal latency around `median` ns.
    fn calls(&mut self, n: usize, median: f64, sigma: f64) -> Distribution {
        let mut stats = TimerStats {
            min: i64::MAX,
            ..TimerStats::default()
        };
        let mut buckets = [0u64; 64];
        for _ in 0..n {
            let value = (median * (sigma * self.normal()).exp()) as i64;
            stats.sum += i128::from(value);
            stats.min = stats.min.min(value);
            stats.max = stats.max.max(value);
            buckets[value.max(1).ilog2() as usize] += 1;
        }
        let held = (0..).zip(buckets).filter(|&(_, n)| n > 0);
        stats.hist = held.collect();
        Distribution::of(&stats)
    }
}

/// Paths of one program: calls in one run and in the other, median, sigma.
const PATHS: [(usize, usize, f64, f64); 6] = [
    (1000, 1000, 1500.0, 0.5),
    (300, 300, 90.0, 1.0),
    (100, 120, 25_000.0, 1.2),
    (20, 20, 700.0, 1.5),
    (10, 400, 3000.0, 1.0),
    (400, 3, 3000.0, 0.2),
];

#[test]
fn of_two_runs_of_one_program_no_path_is_significant_too_often() {
    const RUNS: usize = 1000;
    let mut random = Random(14);
    let (mut alone, mut any) = ([0; PATHS.len()], 0);
    for _ in 0..RUNS {
        let p = PATHS.map(|(n, m, median, sigma)| {
            let old = random.calls(n, median, sigma);
            p_of_means(&old, &random.calls(m, median, sigma))
        });
        for (alone, p) in alone.iter_mut().zip(p) {
            *alone += usize::from(p.unwrap() <= 0.01);
        }
        any += usize::from(adjusted(&p).iter().flatten().any(|&p| p <= 0.01));
    }
    assert!(
        any <= RUNS / 100,
        "{any} runs of {RUNS} have a path that is significant"
    );
    for (of_one, path) in alone.iter().zip(PATHS) {
        assert!(*of_one <= RUNS / 100, "{path:?}: {of_one} of {RUNS}");
    }
}

#[test]
fn a_path_made_5_percent_slower_is_found_with_10_000_calls() {
    const RUNS: usize = 50;
    const OTHERS: usize = 50;
    let mut random = Random(15);
    let mut found = 0;
    for _ in 0..RUNS {
        let mut slower = |sigma: f64| {
            let old = random.calls(10_000, 1500.0, sigma);
            p_of_means(&old, &random.calls(10_000, 1500.0 * 1.05, sigma))
        };
        // A single path is found even if the latencies are more skewed, and also among many paths.
        assert!(slower(0.5).is_some_and(|p| p <= 0.01));
        let mut all = vec![Some(1.0); OTHERS];
        all.push(slower(0.35));
        found += usize::from(adjusted(&all)[OTHERS].is_some_and(|p| p <= 0.01));
    }
    assert_eq!(found, RUNS);
    // All calls may be in one bucket, too.
    let exact = |value: i64| {
        Distribution::of(&TimerStats {
            sum: i128::from(value) * 10_000,
            min: value - 5,
            max: value + 5,
            hist: vec![(6, 10_000)],
            ..TimerStats::default()
        })
    };
    assert!(p_of_means(&exact(100), &exact(105)).unwrap() < 1e-9);
}

#[test]
fn what_cannot_be_told_is_not() {
    let mut random = Random(1);
    let (none, one) = (random.calls(0, 1.0, 1.0), random.calls(1, 100.0, 1.0));
    assert_eq!(p_of_means(&none, &one), None);
    assert_eq!(p_of_means(&one, &one), None);
    let some = random.calls(10, 100.0, 1.0);
    assert_eq!(p_of_means(&some, &some), Some(1.0));
    assert_eq!(p_of_counts(0, 0), None);
    assert_eq!(p_of_counts(10, 10), Some(1.0));
    assert!(p_of_counts(100, 200).unwrap() < 1e-6);
    assert!(p_of_counts(5, 6).unwrap() > 0.5);
}

#[test]
fn the_likelihood_of_the_smallest_is_that_of_any() {
    let alone = [Some(0.01), None, Some(0.04), Some(0.03), Some(0.005)];
    // Holm's own example of four.
    let expected = [Some(0.03), None, Some(0.06), Some(0.06), Some(0.02)];
    for (p, expected) in adjusted(&alone).iter().zip(expected) {
        assert!(p.zip(expected).is_none_or(|(p, e)| (p - e).abs() < 1e-12));
        assert_eq!(p.is_some(), expected.is_some());
    }
    assert!(adjusted(&[]).is_empty());
}

/// Means of several runs of one program, around `by`. The runs differ by the relative deviation
/// `apart`.
fn run_means(random: &mut Random, runs: usize, apart: f64, by: f64) -> Vec<f64> {
    let mean = |_| by * (1.0 + apart * random.normal());
    (0..runs).map(mean).collect()
}

#[test]
fn several_runs_of_one_program_are_seldom_significant() {
    const TRIALS: usize = 5000;
    let mut random = Random(16);
    for (old, new) in [(5, 5), (3, 3), (2, 6), (1, 5)] {
        let mut found = 0;
        for _ in 0..TRIALS {
            let old = run_means(&mut random, old, 0.03, 1.0);
            let p = p_of_samples(&old, &run_means(&mut random, new, 0.03, 1.0));
            found += usize::from(p.unwrap() <= 0.01);
        }
        assert!(
            found <= TRIALS * 14 / 1000,
            "{found} of {TRIALS} with {old} and {new} runs"
        );
    }
}

/// A change of 5 % among ten paths, with five runs a side that differ by 1 %.
#[test]
fn five_percent_are_found_with_five_runs_a_side() {
    const TRIALS: usize = 200;
    let mut random = Random(17);
    let mut found = 0;
    for _ in 0..TRIALS {
        let old = run_means(&mut random, 5, 0.01, 1.0);
        let p = p_of_samples(&old, &run_means(&mut random, 5, 0.01, 1.05));
        let mut all = vec![Some(1.0); 9];
        all.push(p);
        found += usize::from(adjusted(&all)[9].is_some_and(|p| p <= 0.01));
    }
    assert!(found >= TRIALS * 95 / 100, "{found} of {TRIALS}");
}

#[test]
fn what_one_run_a_side_differs_by_is_not_known() {
    assert_eq!(p_of_samples(&[1.0], &[2.0]), None);
    assert_eq!(p_of_samples(&[], &[2.0, 3.0]), None);
    assert_eq!(p_of_samples(&[2.0, 2.0], &[2.0, 2.0]), Some(1.0));
    assert_eq!(p_of_samples(&[2.0, 2.0], &[3.0, 3.0]), Some(0.0));
    // t is 4.359; by the closed form of the distribution with 4 degrees of freedom.
    let p = p_of_samples(&[10.0, 12.0, 11.0], &[14.0, 15.0, 13.5]).unwrap();
    assert!((p - 0.012_08).abs() < 1e-4, "{p}");
    let smallest = smallest_change(&[10.0, 12.0, 11.0], &[14.0, 15.0, 13.5], p).unwrap();
    assert!((smallest - (42.5 / 33.0 - 1.0)).abs() < 1e-6, "{smallest}");
}
