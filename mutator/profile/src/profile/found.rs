//! The result of a search for the costly call paths.

use serde::{Deserialize, Serialize};

/// The call paths that explain where time is spent. All are measured together, after the last
/// change of the set of measured functions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SearchResult {
    /// The length of the measurement of all paths together, in nanoseconds.
    pub ns: u64,
    /// The exact CPU time in the measurement, in nanoseconds: the CPU time to be explained.
    pub cpu_ns: u64,
    /// The off-CPU time of all threads that ran in the measurement, in nanoseconds: the waiting to
    /// be explained. Excludes waits for work, which are estimated from samples.
    pub waiting_ns: u64,
    /// The cost of measuring in the measurement, as a share of the CPU time, from 0 to 1.
    pub overhead: f64,
    /// The number of times that the set of measured functions was changed or measured again.
    pub steps: u64,
    /// The shares of the time that all measured calls explain. `None` in profiles of earlier
    /// versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explained: Option<Explained>,
    /// The paths, costliest first. They have most of the time of the measured calls.
    pub paths: Vec<FoundPath>,
    /// Functions that may have a share of the time but are not measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<Left>,
}

/// Shares of the time to be explained, from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Explained {
    /// The share of [`SearchResult::cpu_ns`].
    pub cpu: f64,
    /// The share of [`SearchResult::waiting_ns`].
    pub waiting: f64,
}

/// Call paths with the same innermost frames.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FoundPath {
    /// The function at the end of the path: an index into [`functions`](super::Profile::functions).
    pub function: usize,
    /// Indexes into [`frames`](super::Profile::frames), from the function's caller outwards.
    pub stack: Vec<usize>,
    /// The number of measured paths of the function whose innermost frames are `stack`.
    pub paths: u64,
    /// True if `stack` is the complete path.
    pub complete: bool,
    /// The number of calls that returned.
    pub calls: u64,
    /// CPU time in the function, in nanoseconds, without the measured functions that it calls.
    pub cpu_ns: u64,
    /// Off-CPU time in the function, in nanoseconds, without the measured functions that it calls.
    pub waiting_ns: u64,
    /// Share of [`SearchResult::cpu_ns`], from 0 to 1. 0 if it is insignificant.
    pub cpu_share: f64,
    /// Share of [`SearchResult::waiting_ns`], from 0 to 1. 0 if it is insignificant.
    pub waiting_share: f64,
    /// True if most of the time is spent waiting for work. Such paths come last.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub idle: bool,
}

/// Kinds of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Time on a processor.
    Cpu,
    /// Time off a processor.
    Waiting,
}

impl Kind {
    /// The time of this kind that `path` takes, in nanoseconds.
    pub fn time(self, path: &FoundPath) -> u64 {
        match self {
            Self::Cpu => path.cpu_ns,
            Self::Waiting => path.waiting_ns,
        }
    }

    /// The share of this kind of time that `path` takes, from 0 to 1.
    pub fn share(self, path: &FoundPath) -> f64 {
        match self {
            Self::Cpu => path.cpu_share,
            Self::Waiting => path.waiting_share,
        }
    }
}

/// The name given as the file of generated code.
pub const GENERATED: &str = "[jit]";

/// A function that is not measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Left {
    /// The demangled name.
    pub name: String,
    /// The name of the function's module. [`GENERATED`] for generated code.
    pub file: String,
    /// The reason why the function is not measured. Empty if it is only known from samples.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The share of CPU time that the function may take, estimated from samples, from 0 to 1.
    pub cpu_share: f64,
    /// The share of waiting that the function may take, estimated from samples, from 0 to 1.
    pub waiting_share: f64,
}

impl Left {
    /// The larger of the shares of CPU time and of waiting.
    pub fn share(&self) -> f64 {
        self.cpu_share.max(self.waiting_share)
    }
}

impl SearchResult {
    /// The function with the most CPU time that is not measured. `None` unless it takes more CPU
    /// time than each path that is not idle. Generated code is part of the path that calls it, so
    /// more than half as much is enough for it.
    pub fn costliest_left(&self) -> Option<&Left> {
        let most = self.active().map(|path| path.cpu_share);
        let most = most.fold(0.0, f64::max);
        let factor = |left: &Left| if left.file == GENERATED { 2.0 } else { 1.0 };
        let is_more = |left: &&Left| left.cpu_share * factor(left) > most;
        let left = self.left.iter().filter(is_more);
        left.max_by(|a, b| a.cpu_share.total_cmp(&b.cpu_share))
    }

    /// The path with the highest rank, and the kind of time that ranks it. `None` if the search
    /// found no path. Waiting counts for less if the threads wait for less time than they run.
    pub fn first(&self) -> Option<(&FoundPath, Kind)> {
        let path = self.paths.first()?;
        let weight = (self.waiting_ns as f64 / self.cpu_ns.max(1) as f64).min(1.0);
        let is_cpu = path.cpu_share >= weight * path.waiting_share;
        Some((path, if is_cpu { Kind::Cpu } else { Kind::Waiting }))
    }

    /// The paths that are not idle.
    fn active(&self) -> impl Iterator<Item = &FoundPath> {
        self.paths.iter().filter(|path| !path.idle)
    }

    /// The path with the most time of a kind, without idle paths. `None` if it takes less than a
    /// tenth of all CPU time and waiting, or if there is no path.
    pub fn substantial(&self, kind: Kind) -> Option<&FoundPath> {
        const SUBSTANTIAL: f64 = 0.1;
        let most = self.active().max_by_key(|path| kind.time(path))?;
        let all = self.cpu_ns.saturating_add(self.waiting_ns) as f64;
        (kind.time(most) as f64 >= SUBSTANTIAL * all).then_some(most)
    }

    /// The shares that are explained. In profiles of earlier versions, these are the sums over the
    /// paths.
    pub fn explained(&self) -> Explained {
        let sum = |share: fn(&FoundPath) -> f64| {
            let shares = self.paths.iter().map(share);
            shares.fold(0.0, |sum: f64, share| sum + share).min(1.0)
        };
        self.explained.unwrap_or_else(|| Explained {
            cpu: sum(|path| path.cpu_share),
            waiting: sum(|path| path.waiting_share),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Profile;
    use crate::sample::sample;

    #[test]
    fn indexes_that_lead_nowhere_are_found_and_named() {
        let with = |function: usize, stack: Vec<usize>| Profile {
            search: Some(SearchResult {
                paths: vec![FoundPath {
                    function,
                    stack,
                    ..FoundPath::default()
                }],
                ..SearchResult::default()
            }),
            ..sample()
        };
        let wrong = |profile: Profile| profile.check_structure().unwrap_err().to_string();
        with(0, vec![0]).check_structure().unwrap();
        let said = wrong(with(9, Vec::new()));
        assert!(said.starts_with("search.paths[0].function is 9"), "{said}");
        let said = wrong(with(0, vec![0, 99]));
        assert!(said.starts_with("search.paths[0].stack[1] is 99"), "{said}");
    }
}
