//! Paths that are kept apart from others with the same call sites.

use std::fmt;

use super::{Apart, PathEntry, Profile, printable};

impl PathEntry {
    /// What keeps the path apart from others with the same call sites.
    pub fn apart(&self) -> Apart {
        Apart {
            phase: self.phase,
            by: self.by.clone(),
            slower: self.slower,
        }
    }

    /// True if something keeps the path apart from others with the same call sites.
    fn is_apart(&self) -> bool {
        self.phase.is_some() || self.by.is_some() || self.slower
    }
}

impl Profile {
    /// What keeps a path apart from others with the same call sites, as text: `arg1=4096`. `None`
    /// if nothing does.
    pub fn apart(&self, path: &PathEntry) -> Option<String> {
        if !path.is_apart() {
            return None;
        }
        let session = &self.session;
        let phase = path.phase.and_then(|index| session.phases.get(index));
        let phase = phase.map(|phase| format!("phase {}", printable(&phase.name)));
        let by = path.by.as_ref().map(|value| {
            let name = session.by.as_deref().unwrap_or("value");
            format!(
                "{}={}",
                printable(name.trim_end_matches(":str")),
                value.text()
            )
        });
        let slower = path.slower.then(|| match session.slower_ns {
            Some(ns) => format!(">={}", duration(ns)),
            None => "slow".to_owned(),
        });
        let all: Vec<String> = phase.into_iter().chain(by).chain(slower).collect();
        Some(all.join(" "))
    }
}

/// Why a profile has no phase of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoPhase {
    /// Its paths are not kept apart by phase.
    Apart,
    /// No phase has this name.
    Named(String),
}

impl fmt::Display for NoPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Apart => f.write_str("its paths are not kept apart by phase"),
            Self::Named(name) => write!(f, "no phase '{}'", printable(name)),
        }
    }
}

impl std::error::Error for NoPhase {}

impl Profile {
    /// The index of the phase with this name.
    ///
    /// # Errors
    /// There is none.
    pub fn phase(&self, name: &str) -> Result<usize, NoPhase> {
        let phases = &self.session.phases;
        if phases.is_empty() {
            return Err(NoPhase::Apart);
        }
        let found = phases.iter().position(|phase| phase.name == name);
        found.ok_or_else(|| NoPhase::Named(name.to_owned()))
    }

    /// Keeps only the paths of one phase, and forgets the phases and single calls. The totals of
    /// functions stay.
    ///
    /// # Errors
    /// There is no such phase.
    pub fn keep_phase(&mut self, name: &str) -> Result<(), NoPhase> {
        let index = self.phase(name)?;
        self.forget_single_calls();
        self.paths.retain(|path| path.phase == Some(index));
        for path in &mut self.paths {
            path.phase = None;
        }
        self.session.phases.clear();
        Ok(())
    }
}

/// A time in its largest unit without a fraction.
fn duration(ns: u64) -> String {
    let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")];
    let fits = |(length, _): &&(u64, &str)| ns >= *length && ns.is_multiple_of(*length);
    match units.iter().find(fits) {
        Some((length, unit)) => format!("{}{unit}", ns / length),
        None => format!("{ns}ns"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_the_largest_unit() {
        for (ns, text) in [
            (10_000_000, "10ms"),
            (1_500_000, "1500us"),
            (2_000_000_000, "2s"),
            (17, "17ns"),
        ] {
            assert_eq!(duration(ns), text);
        }
    }
}
