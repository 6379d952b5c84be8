//! Values of sources, and their growth between two times.

/// The value of a source.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// The number, in the source's unit.
    pub number: u64,
    /// For a counter: the time in which it was counted so far, in ns; 0 if that is unknown for this
    /// moment.
    pub running: u64,
    /// For a counter: the time in which the thread ran, but the counter was not counted, in ns.
    pub missing: u64,
}

/// The reason why a source has no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silent {
    /// The kernel must be asked.
    Unasked,
    /// The value cannot be determined.
    Unknown,
}

impl Said {
    /// The value of a source that is no counter.
    #[inline(always)]
    pub fn number(number: u64) -> Self {
        Self {
            number,
            ..Self::default()
        }
    }

    /// The growth of the source since `from`, in its unit; `None` if it was not counted at all in
    /// between.
    #[inline(always)]
    pub fn since(&self, from: &Self) -> Option<u64> {
        let grown = self.number.saturating_sub(from.number);
        match self.missing.saturating_sub(from.missing) {
            0 => Some(grown),
            missing => scaled(grown, self.running.saturating_sub(from.running), missing),
        }
    }
}

/// Scales a growth of `count` in `running` ns to `running` plus `missing` ns. `None` if `running`
/// is 0, before or after both times are reduced to 32 bits.
#[cold]
#[inline(never)]
#[cfg_attr(ipath_image, unsafe(link_section = ".text.fast"))]
fn scaled(count: u64, mut running: u64, mut missing: u64) -> Option<u64> {
    /// The bits to which the times are reduced. A ratio of times needs no more, and the product of
    /// a remainder and a time then fits.
    const BITS: u32 = 32;
    let more = (running | missing) >> BITS;
    let shift = u64::BITS - more.leading_zeros();
    running >>= shift;
    missing >>= shift;
    let whole = count.checked_div(running)?.saturating_mul(missing);
    let rest = count % running * missing / running;
    Some(count.saturating_add(whole).saturating_add(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with a computation in more bits, for times of days.
    #[test]
    fn large_numbers_are_scaled_as_well() {
        let mut bits = 0x9e37_79b9_7f4a_7c15u64;
        let mut below = |most: u32| {
            bits ^= bits << 13;
            bits ^= bits >> 7;
            bits ^= bits << 17;
            (bits >> 8) & ((1 << (bits as u32 % most + 1)) - 1)
        };
        let mut scaled_some = 0;
        for _ in 0..100_000 {
            let (count, running, missing) = (below(50), below(48) + 1, below(48));
            let more = u128::from(count) * u128::from(missing) / u128::from(running);
            let exact = u64::try_from(u128::from(count) + more).unwrap_or(u64::MAX);
            match scaled(count, running, missing) {
                None => assert!(running < missing >> 30, "{count} {running} {missing}"),
                // Too few bits are left of the time in which it was counted.
                Some(_) if running < missing >> 16 => {}
                Some(found) => {
                    scaled_some += 1;
                    let wrong = found.abs_diff(exact);
                    let slack = (exact >> 12) + 1;
                    assert!(
                        wrong <= slack,
                        "{count} {running} {missing}: {found}, {exact}"
                    );
                }
            }
        }
        assert!(scaled_some > 10_000);
        assert_eq!(scaled(u64::MAX, 1, u64::MAX >> 40), Some(u64::MAX));
        assert_eq!(scaled(5, 0, 9), None);
        assert_eq!(scaled(0, 1, u64::MAX >> 40), Some(0));
        assert_eq!(scaled(1000, 50, 150), Some(4000));
    }
}
