//! The iterations and the times of loops inside functions.

use super::human;
use crate::profile::{Inside, Loop, Profile};

/// The iterations of an entry at this percentile, as the range of the histogram: `4-7`. `-` if no
/// trip was counted.
pub(super) fn trips_at(own: &Loop, percent: u128) -> String {
    let all = own.trips.iter().map(|&(_, count)| u128::from(count));
    let rank = (all.sum::<u128>() * percent).div_ceil(100).max(1);
    let mut sum = 0;
    let reached = own.trips.iter().find(|&&(_, count)| {
        sum += u128::from(count);
        sum >= rank
    });
    match reached {
        None => "-".to_owned(),
        Some(&(power, _)) => trip_range(power),
    }
}

/// The iterations that a bucket of the histogram [`Loop::trips`] stands for: `4-7` for 2.
pub fn trip_range(power: u32) -> String {
    let first = 1_u128 << power.min(64);
    match 2 * first - 1 {
        1 => "1".to_owned(),
        last => format!("{first}-{last}"),
    }
}

/// The time of a loop, and the mean time of an iteration. `-` if they are not known: the loop is
/// not timed, or not all of its entries were both counted and timed.
pub fn times_of(profile: &Profile, inside: &Inside, own: &Loop) -> [String; 2] {
    let wall = own.wall.as_ref();
    let sum = wall.map_or("-".to_owned(), |wall| human::quantity(wall.sum, "ns"));
    let is_whole = profile.timed_entries(inside, own) == Some(own.entries) && own.iterations > 0;
    let wall = wall.filter(|_| is_whole);
    let each = wall.map(|wall| wall.sum as f64 / own.iterations as f64);
    [sum, human::average(each, "ns")]
}
