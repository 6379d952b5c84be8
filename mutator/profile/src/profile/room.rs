//! Calls that have no path of their own, and the reasons.

use super::{Losses, PathEntry, Profile};
use abi::shortage::Shortage;
use std::collections::BTreeSet;

/// Replaces the name of unknown callers.
pub const UNKNOWN_CALLERS: &str = "[callers unknown]";
/// Replaces the callers of calls whose paths are beyond the limit of paths.
const CALLERS_BEYOND_LIMIT: &str =
    "[callers unknown: --max-paths reached; see --collapse-recursion]";
/// Replaces the callers of calls whose paths had no room for another reason than the limit.
const CALLERS_WITHOUT_ROOM: &str =
    "[callers unknown: no room for their paths; see --collapse-recursion]";

/// The names, in profiles, of the shortages whose bits are set.
pub fn names_of(bits: u64) -> BTreeSet<String> {
    Shortage::of(bits)
        .map(|shortage| shortage.name().to_owned())
        .collect()
}

/// A phrase that names the exhausted resource.
pub fn reason(shortage: Shortage) -> &'static str {
    match shortage {
        Shortage::Paths => "more paths than --max-paths",
        Shortage::Room => "more or longer paths than --max-paths has room for",
        Shortage::Group => "the memory cgroup of the process is nearly full",
        Shortage::Shared => "no memory for the session's segment: /dev/shm is full",
        Shortage::Mapping => {
            "no memory could be mapped: RLIMIT_AS, RLIMIT_DATA or vm.max_map_count"
        }
        Shortage::List => "the runtime's list of mappings is full",
        Shortage::Reserve => "the memory reserved for a runtime without system calls is used up",
        Shortage::Depth => "their stacks are too deep",
        Shortage::Frames => "all paths together have more frames than a profile has room for",
    }
}

impl Losses {
    /// The reasons for calls without their own path, as text. If the profile does not record any,
    /// the reason is the limit of paths.
    pub fn overflow_reasons(&self) -> String {
        let known = self.overflow_by.iter();
        let known = known.filter_map(|name| Shortage::named(name).map(reason));
        match known.collect::<Vec<_>>().join("; ") {
            // The profile does not record the reasons.
            none if none.is_empty() => reason(Shortage::Paths).to_owned(),
            reasons => reasons,
        }
    }

    /// True if a larger `--max-paths` would give more calls a path of their own.
    pub fn is_beyond_max_paths(&self) -> bool {
        self.overflow > 0 && !self.is_without_room()
    }

    /// True if room was short for a reason other than the limit of paths.
    fn is_without_room(&self) -> bool {
        let is_by = |shortage: Shortage| self.overflow_by.contains(shortage.name());
        !self.overflow_by.is_empty() && !is_by(Shortage::Paths) && !is_by(Shortage::Room)
    }
}

impl Profile {
    /// The text for unknown callers. `None` on a complete path.
    pub fn unknown_callers(&self, path: &PathEntry) -> Option<&'static str> {
        if path.complete {
            None
        } else {
            Some(self.unknown_callers_of(&path.stack))
        }
    }

    /// The text for unknown callers, given the frames of an incomplete path.
    pub fn unknown_callers_of(&self, stack: &[usize]) -> &'static str {
        let losses = &self.losses;
        // An entry without a frame holds all paths of its function that had no room.
        match stack.is_empty() {
            false => UNKNOWN_CALLERS,
            true if losses.is_without_room() => CALLERS_WITHOUT_ROOM,
            true => CALLERS_BEYOND_LIMIT,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::sample::sample;
    use abi::shortage::Shortage;

    #[test]
    fn paths_without_memory_are_not_beyond_the_limit() {
        let mut profile = sample();
        profile.paths[0].stack.clear();
        profile.paths[0].complete = false;
        profile.losses.overflow = 7;
        let callers = |profile: &crate::profile::Profile| {
            profile.unknown_callers(&profile.paths[0]).expect("none")
        };
        assert!(profile.losses.overflow_reasons().contains("--max-paths"));
        assert!(callers(&profile).contains("--max-paths"));
        for shortage in Shortage::ALL {
            profile.losses.overflow_by = [shortage.name().to_owned()].into();
            let is_limit = matches!(shortage, Shortage::Paths | Shortage::Room);
            let said = [
                profile.losses.overflow_reasons(),
                callers(&profile).to_owned(),
            ];
            for said in said {
                assert_eq!(said.contains("--max-paths"), is_limit, "{said}");
            }
        }
    }
}
