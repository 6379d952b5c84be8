//! A cautious estimate of the spread of values.

use super::Distribution;

impl Distribution {
    /// An upper estimate of the population variance (divided by n, not n - 1). `None` if there are
    /// no values, or if the buckets do not hold all of them.
    ///
    /// Each value is assumed to be at an end of its bucket. The fraction at the upper end is the
    /// same in each bucket, and follows from the exact sum.
    ///
    /// A square is convex: values in [l, h] with mean l + p(h - l) have a variance of at most p(1 -
    /// p)(h - l)^2, with all of them at the ends. So the estimate is never too small if the mean
    /// position in each bucket is the same.
    pub fn cautious_variance(&self) -> Option<f64> {
        if !self.is_known() {
            return None;
        }
        let n = self.held() as f64;
        let above = self.above()?;
        if self.held() == 1 {
            return Some(0.0);
        }
        let mean = above.sum / n;
        let away = |value: f64| (value - mean) * (value - mean);
        let place = above.place();
        let squares = above.others.iter().map(|&(low, width, held)| {
            held * ((1.0 - place) * away(low) + place * away(low + width))
        });
        // The minimum and the maximum are known.
        let ends = away(0.0) + away(above.range);
        Some((ends + squares.sum::<f64>()) / n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::TimerStats;
    use proptest::prelude::*;

    fn of(values: &[i64]) -> Distribution {
        let mut hist = std::collections::BTreeMap::<u8, u64>::new();
        for &value in values {
            *hist.entry(value.max(1).ilog2() as u8).or_default() += 1;
        }
        Distribution::of(&TimerStats {
            sum: values.iter().map(|&v| i128::from(v)).sum(),
            min: values.iter().copied().min().unwrap_or(0),
            max: values.iter().copied().max().unwrap_or(0),
            hist: hist.into_iter().collect(),
            ..TimerStats::default()
        })
    }

    fn variance(values: &[i64]) -> f64 {
        let n = values.len() as f64;
        let mean = values.iter().sum::<i64>() as f64 / n;
        values
            .iter()
            .map(|&v| (v as f64 - mean).powi(2))
            .sum::<f64>()
            / n
    }

    proptest! {
        #[test]
        fn no_values_of_one_bucket_vary_more(values in proptest::collection::vec(1024i64..2048, 1..60)) {
            let cautious = of(&values).cautious_variance().unwrap();
            prop_assert!(cautious >= variance(&values) * (1.0 - 1e-9) - 1e-6);
        }

        #[test]
        fn it_is_above_the_estimate(values in proptest::collection::vec(0i64..5000, 1..60)) {
            let cautious = of(&values).cautious_variance().unwrap();
            let estimate = of(&values).deviation().unwrap();
            prop_assert!(cautious.sqrt() >= estimate * (1.0 - 1e-9) - 1e-6);
        }
    }

    #[test]
    fn equal_values_do_not_vary() {
        for values in [&[7][..], &[7, 7, 7]] {
            assert_eq!(of(values).cautious_variance(), Some(0.0));
        }
        assert_eq!(Distribution::default().cautious_variance(), None);
        // At both ends of a bucket, as far apart as possible.
        assert_eq!(
            of(&[64, 64, 127, 127]).cautious_variance(),
            Some(31.5 * 31.5)
        );
    }
}
