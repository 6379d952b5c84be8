//! Sessions with a high measuring overhead: its reason, and advice to reduce it.

use std::collections::HashSet;

use super::{PathEntry, Profile};
use crate::display_name;

/// The smallest share of the program's time that counts as high.
const HIGH_SHARE: f64 = 0.5;
/// The smallest total overhead that is reported, in nanoseconds. Below it, the trial before the
/// first call dominates.
const SOME: u64 = 100_000_000;
/// The number of paths from which on a function counts as having many.
const MANY: usize = 4096;

/// The most paths that are checked for recursion, because this runs at every redraw.
const LOOKED_AT: usize = 1000;

/// The most terminal columns for a function's name.
const LONGEST: usize = 60;

/// The function with the most calls.
struct Busiest {
    /// Shortened, because the text repeats it.
    name: String,
    calls: u64,
    /// The number of its paths, without the entry for all paths beyond the limit.
    paths: usize,
    /// True if most of its calls are on paths with recursion.
    recurs: bool,
    /// True if it has a metric that it can do without.
    is_timed: bool,
}

impl Profile {
    /// The reason and advice if measuring takes at least half of the program's time and at least
    /// 0.1 s, otherwise `None`. Also `None` if the overhead is not known. The share itself is in
    /// [`Session::overhead_share`](super::Session::overhead_share). Names are raw: escape them
    /// before display.
    pub fn heavy(&self) -> Option<String> {
        let overhead = self.session.overhead.as_ref()?;
        if overhead.share < HIGH_SHARE || overhead.total_ns < SOME {
            return None;
        }
        let busiest = self.busiest()?;
        let mut text = format!(
            "{} of {} calls are calls of {}, on {}",
            busiest.calls,
            self.calls(),
            busiest.name,
            match busiest.paths {
                1 => "1 path".to_owned(),
                n => format!("{n} paths"),
            }
        );
        if self.losses.overflow > 0 {
            text.push_str(&format!(
                ", and {} calls are without their own path ({}), the most expensive case",
                self.losses.overflow,
                self.losses.overflow_reasons()
            ));
        }
        text.push_str(". To reduce it: ");
        text.push_str(&self.changes(&busiest).join(", or "));
        Some(text)
    }

    /// The share that measuring takes and the text of [`Profile::heavy`], in one line. `None` if
    /// that is `None`.
    pub fn heavy_line(&self) -> Option<String> {
        let heavy = self.heavy()?;
        let share = self.session.overhead_share().unwrap_or_default();
        Some(format!("measuring takes {share}: {heavy}"))
    }

    /// The function with the most calls. `None` if the profile has no functions.
    fn busiest(&self) -> Option<Busiest> {
        let count = |index: usize| self.functions[index].totals.counts.count;
        let index = (0..self.functions.len()).max_by_key(|&index| count(index))?;
        // Skip the entry for all paths beyond the limit.
        let is_own = |p: &&PathEntry| p.function == index && !is_overflow(p);
        let paths: Vec<&PathEntry> = self.paths.iter().filter(is_own).collect();
        let calls = |paths: &mut dyn Iterator<Item = &&PathEntry>| {
            paths.map(|p| p.metrics.count).fold(0, u64::saturating_add)
        };
        let looked_at = || paths.iter().take(LOOKED_AT);
        let below = calls(&mut looked_at().filter(|path| self.recurs(path)));
        Some(Busiest {
            name: display_name::fit(&self.functions[index].name, LONGEST),
            calls: count(index),
            paths: paths.len(),
            recurs: below > calls(&mut looked_at()) / 2,
            // The call path of a path inside a function is known at its end.
            is_timed: self.timers().next().is_some() && !self.functions[index].timed_paths,
        })
    }

    /// True if a function occurs twice on a path.
    fn recurs(&self, path: &PathEntry) -> bool {
        let own = self.functions.get(path.function).map(|f| &f.linkage);
        let mut seen: HashSet<&String> = own.into_iter().collect();
        let frames = path
            .stack
            .iter()
            .filter_map(|&frame| self.frames.get(frame));
        let mut names = frames.filter_map(|frame| frame.function.as_ref());
        names.any(|name| !seen.insert(name))
    }

    /// Possible changes, the most effective first.
    fn changes(&self, busiest: &Busiest) -> Vec<String> {
        let mut changes = Vec::new();
        if busiest.recurs && !self.session.collapsed {
            changes.push("--collapse-recursion, which folds its recursion".to_owned());
        }
        if busiest.paths >= MANY || self.losses.overflow > 0 {
            changes.push("--depth N, which keeps the innermost N callers apart".to_owned());
        }
        if self.losses.is_beyond_max_paths() {
            changes.push(format!(
                "--max-paths above the present {}",
                self.paths.iter().filter(|path| !is_overflow(path)).count()
            ));
        }
        if busiest.is_timed {
            changes.push(format!("-m count for {}", busiest.name));
        }
        changes.push(format!("leave {} out", busiest.name));
        changes
    }
}

/// True for the entry that holds the calls of a function's paths beyond the limit.
fn is_overflow(path: &PathEntry) -> bool {
    path.stack.is_empty() && !path.complete
}

#[cfg(test)]
mod tests {
    use crate::profile::{Overhead, Profile};
    use crate::sample::sample;

    fn with_share(share: f64, total_ns: u64) -> Profile {
        let mut profile = sample();
        profile.session.overhead = Some(Overhead {
            call_ns: 900.0,
            total_ns,
            share,
            libraries_ns: 0,
            corrected: true,
            unreliable: false,
        });
        profile
    }

    #[test]
    fn half_of_the_time_is_too_much() {
        assert_eq!(sample().heavy(), None);
        assert_eq!(with_share(0.49, 1 << 40).heavy(), None);
        assert_eq!(with_share(0.99, 1 << 26).heavy(), None);
        let said = with_share(0.93, 1 << 40).heavy().expect("too much");
        assert!(!said.contains(" % of "), "{said}");
        let name = &sample().functions[0].name;
        assert!(said.contains(&format!("leave {name} out")), "{said}");
        assert!(!said.contains("--max-paths"), "{said}");
    }

    #[test]
    fn what_helps_goes_by_what_the_paths_are() {
        let mut profile = with_share(0.9, 1 << 40);
        profile.losses.overflow = 7;
        let said = profile.heavy().expect("too much");
        for option in [
            "7 calls are without their own path (more paths than --max-paths)",
            "--depth N",
            "--max-paths above",
        ] {
            assert!(said.contains(option), "{option}: {said}");
        }
        profile.losses.overflow_by = ["memory-cgroup".to_owned()].into();
        let said = profile.heavy().expect("too much");
        assert!(!said.contains("--max-paths"), "{said}");
        for path in &mut profile.paths {
            let first = path.stack.first().copied();
            path.stack.extend(first);
        }
        let said = profile.heavy().expect("too much");
        assert!(
            said.contains("To reduce it: --collapse-recursion"),
            "{said}"
        );
        profile.session.collapsed = true;
        let said = profile.heavy().expect("too much");
        assert!(!said.contains("--collapse-recursion"), "{said}");
    }
}
