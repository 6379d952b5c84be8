//! What a search for the costly call paths has come to.

use serde::{Deserialize, Serialize};

/// The call paths that explain where time goes, measured together after all changes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// For how long they were measured, in ns.
    pub ns: u64,
    /// CPU time to be explained, in ns, exact.
    pub cpu_ns: u64,
    /// Time off a processor to be explained, of all threads that ran, in ns. Waiting for work is not in it,
    /// and is estimated from samples.
    pub waiting_ns: u64,
    /// What measuring took in that time, as a share of the CPU time.
    pub overhead: f64,
    /// How often what is measured was changed, or looked at again.
    pub steps: u64,
    /// The shares that all measured calls explain. `None` in profiles of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explained: Option<Explained>,
    /// The paths, the costliest first. They are the largest part of the measured calls.
    pub paths: Vec<FoundPath>,
    /// Functions that may have a share of the time and are not measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<Left>,
}

/// Shares of the time that is to be explained, from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Explained {
    /// The share of [`Found::cpu_ns`].
    pub cpu: f64,
    /// The share of [`Found::waiting_ns`].
    pub waiting: f64,
}

/// Call paths that begin alike, from a function outwards.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FoundPath {
    /// Index into [`functions`](super::Profile::functions).
    pub function: usize,
    /// Indexes into [`frames`](super::Profile::frames), from the function's caller outwards.
    pub stack: Vec<usize>,
    /// How many paths begin so.
    pub paths: u64,
    /// True if the stack is all of them.
    pub complete: bool,
    /// Calls that returned.
    pub calls: u64,
    /// CPU time in the function but not in measured functions that it calls, in ns.
    pub cpu_ns: u64,
    /// The same of time off a processor.
    pub waiting_ns: u64,
    /// Share of [`Found::cpu_ns`], from 0 to 1; 0 where that is too little to be looked at.
    pub cpu_share: f64,
    /// Share of [`Found::waiting_ns`], likewise.
    pub waiting_share: f64,
    /// True if most of the time begins and ends waits for work. Such paths come last.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub idle: bool,
}

/// Kinds of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// On a processor.
    Cpu,
    /// Off it.
    Waiting,
}

impl Kind {
    /// The time of this kind in a path, in ns.
    pub fn time(self, path: &FoundPath) -> u64 {
        match self {
            Self::Cpu => path.cpu_ns,
            Self::Waiting => path.waiting_ns,
        }
    }

    /// Its share of this kind.
    pub fn share(self, path: &FoundPath) -> f64 {
        match self {
            Self::Cpu => path.cpu_share,
            Self::Waiting => path.waiting_share,
        }
    }
}

/// The file of a function in generated code.
pub const GENERATED: &str = "[jit]";

/// A function that is not measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Left {
    /// Demangled.
    pub name: String,
    /// What its module is called.
    pub file: String,
    /// Why it is not measured; empty where only the bounds say so.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Share of the CPU time that may be its own, estimated from samples.
    pub cpu_share: f64,
    /// The same of waiting.
    pub waiting_share: f64,
}

impl Left {
    /// The larger share.
    pub fn share(&self) -> f64 {
        self.cpu_share.max(self.waiting_share)
    }
}

impl Found {
    /// The function that is not measured and has more CPU time than each path, other than idle ones. Generated code is a part of
    /// the path that calls it, so half as much is enough.
    pub fn costliest_left(&self) -> Option<&Left> {
        let most = self.active().map(|path| path.cpu_share);
        let most = most.fold(0.0, f64::max);
        let factor = |left: &Left| if left.file == GENERATED { 2.0 } else { 1.0 };
        let is_more = |left: &&Left| left.cpu_share * factor(left) > most;
        let left = self.left.iter().filter(is_more);
        left.max_by(|a, b| a.cpu_share.total_cmp(&b.cpu_share))
    }

    /// The path with the highest rank, and the kind of its time that counts for more. Waiting counts for less if
    /// the threads wait for less time than they run.
    pub fn first(&self) -> Option<(&FoundPath, Kind)> {
        let path = self.paths.first()?;
        let weight = (self.waiting_ns as f64 / self.cpu_ns.max(1) as f64).min(1.0);
        let is_cpu = path.cpu_share >= weight * path.waiting_share;
        Some((path, if is_cpu { Kind::Cpu } else { Kind::Waiting }))
    }

    /// The paths on which threads do not wait for work.
    fn active(&self) -> impl Iterator<Item = &FoundPath> {
        self.paths.iter().filter(|path| !path.idle)
    }

    /// The path with the most time of a kind, other than idle ones. `None` if that is a small part of all time.
    pub fn substantial(&self, kind: Kind) -> Option<&FoundPath> {
        const SUBSTANTIAL: f64 = 0.1;
        let most = self.active().max_by_key(|path| kind.time(path))?;
        let all = self.cpu_ns.saturating_add(self.waiting_ns) as f64;
        (kind.time(most) as f64 >= SUBSTANTIAL * all).then_some(most)
    }

    /// The shares that are explained, in profiles of earlier versions those of the paths.
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
            search: Some(Found {
                paths: vec![FoundPath {
                    function,
                    stack,
                    ..FoundPath::default()
                }],
                ..Found::default()
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
