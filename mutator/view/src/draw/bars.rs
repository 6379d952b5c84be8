//! A distribution on part of a line, with a bar for each power of two.

use ipath_profile::Distribution;
use ipath_profile::report::human;

const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// The maximum number of bars. Wider distributions are not shown.
const MAX_WIDTH: usize = 40;

/// `  512 ns ▁▇█▁ 8.19 us`, with the lower bound of the first bar and the upper bound of the last.
/// `None` if there are no values, or if they are not in known buckets or too far apart.
pub(super) fn of(values: &Distribution, unit: &str) -> Option<String> {
    let buckets = values.buckets();
    let ((first, _), (last, _)) = (*buckets.first()?, *buckets.last()?);
    if !values.is_known() || first.up_to(last) >= MAX_WIDTH {
        return None;
    }
    let largest = buckets.iter().map(|b| b.1).max()?;
    let mut bars = String::new();
    let mut at = first;
    for &(bucket, n) in buckets {
        while at < bucket {
            bars.push(' ');
            at = at.next();
        }
        // A nonempty bucket has a bar.
        let height = (u128::from(n) * BARS.len() as u128).div_ceil(largest.into());
        let height = usize::try_from(height).unwrap_or(0).saturating_sub(1);
        bars.extend(BARS.get(height));
        at = at.next();
    }
    let (from, below) = (first.least(), last.most() + 1);
    let (from, below) = (human::quantity(from, unit), human::quantity(below, unit));
    Some(format!("  {from} {bars} {below}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ipath_profile::TimerStats;

    fn bars(hist: &[(u8, u64)], hist_negative: &[(u8, u64)], unit: &str) -> Option<String> {
        let stats = TimerStats {
            max: 1 << hist.first().map_or(0, |b| b.0),
            hist: hist.to_vec(),
            hist_negative: hist_negative.to_vec(),
            ..TimerStats::default()
        };
        of(&Distribution::of(&stats), unit)
    }

    #[test]
    fn bars_are_as_high_as_buckets_are_full() {
        assert_eq!(bars(&[], &[], "ns"), None);
        assert_eq!(bars(&[(0, 3)], &[], "ns").as_deref(), Some("  0 ns █ 2 ns"));
        let text = bars(&[(9, 1), (10, 500), (11, 1000), (14, 251)], &[], "ns");
        assert_eq!(text.as_deref(), Some("  512 ns ▁▄█  ▃ 32.8 us"));
        let text = bars(&[(0, 8), (1, 4)], &[(2, 2), (0, 1)], "");
        assert_eq!(text.as_deref(), Some("  -7 ▂ ▁█▄ 4"));
        let far = [(0, 1), (MAX_WIDTH as u8, 1)];
        assert_eq!(bars(&far, &[], "ns"), None);
    }
}
