//! Time on a processor and off it. The two are kept apart: if one thread computes and many wait for
//! it, the cause is only a small part of both together.

use std::iter::Sum;
use std::ops::{Add, AddAssign, Mul};

/// Time of threads on a processor and off it: ns, or shares of such times.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// On a processor.
    pub cpu: f64,
    /// Off it: waiting, and ready without a processor.
    pub off: f64,
}

impl Cost {
    /// Each part as a share of the same part of `whole`. If a part of `whole` is less than `least`
    /// of both together, it is insignificant, and its share is 0.
    pub fn share_of(self, whole: Self, least: f64) -> Self {
        let significant = |part: f64| part > 0.0 && part >= least * whole.sum();
        let share = |part: f64, of: f64| if significant(of) { part / of } else { 0.0 };
        Self {
            cpu: share(self.cpu, whole.cpu),
            off: share(self.off, whole.off),
        }
    }

    /// The sum of both parts.
    pub fn sum(self) -> f64 {
        self.cpu + self.off
    }

    /// The larger part.
    pub fn largest(self) -> f64 {
        self.cpu.max(self.off)
    }

    /// 1 for each significant part of `whole`, as in [`Cost::share_of`], and 0 for any other.
    pub fn parts(whole: Self, least: f64) -> Self {
        whole.share_of(whole, least)
    }

    /// True if neither part is less than that of `other`.
    pub fn reaches(self, other: Self) -> bool {
        self.cpu >= other.cpu && self.off >= other.off
    }
}

impl Add for Cost {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            cpu: self.cpu + other.cpu,
            off: self.off + other.off,
        }
    }
}

impl AddAssign for Cost {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Mul<f64> for Cost {
    type Output = Self;

    fn mul(self, factor: f64) -> Self {
        Self {
            cpu: self.cpu * factor,
            off: self.off * factor,
        }
    }
}

impl Sum for Cost {
    fn sum<I: Iterator<Item = Self>>(costs: I) -> Self {
        costs.fold(Self::default(), Add::add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_is_next_to_nothing_has_no_shares() {
        let whole = Cost {
            cpu: 995.0,
            off: 5.0,
        };
        let part = Cost {
            cpu: 199.0,
            off: 5.0,
        };
        assert_eq!(part.share_of(whole, 0.01), Cost { cpu: 0.2, off: 0.0 });
        assert_eq!(part.share_of(whole, 0.001), Cost { cpu: 0.2, off: 1.0 });
        assert_eq!(part.share_of(Cost::default(), 0.01), Cost::default());
    }
}
