//! Time on a processor and off it. Each is a whole of its own: where one thread computes and many wait for it, the cause is
//! a small part of both together.

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
    /// Each part of this by that part of a whole. A part that is less than `least` of the whole is nobody's concern, and
    /// has no shares.
    pub fn share_of(self, whole: Self, least: f64) -> Self {
        let significant = |part: f64| part > 0.0 && part >= least * whole.sum();
        let share = |part: f64, of: f64| if significant(of) { part / of } else { 0.0 };
        Self {
            cpu: share(self.cpu, whole.cpu),
            off: share(self.off, whole.off),
        }
    }

    /// Both together.
    pub fn sum(self) -> f64 {
        self.cpu + self.off
    }

    /// The larger of both.
    pub fn largest(self) -> f64 {
        self.cpu.max(self.off)
    }

    /// Those parts that are significant of a whole, as [`Cost::share_of`] says.
    pub fn parts(whole: Self, least: f64) -> Self {
        whole.share_of(whole, least)
    }

    /// True if each part of this is no less than that of another.
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
