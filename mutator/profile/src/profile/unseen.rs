//! Known losses without a call count. They are counted in other units, for example processes or
//! libraries.

use std::collections::BTreeMap;

/// A kind of loss. Each variant names what is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unseen {
    /// Programs that replaced a measured program and were not followed.
    Programs,
    /// Children and programs of a followed process that could not be measured.
    Processes,
    /// Processes that were not measured because their parent was killed during the fork.
    Orphans,
    /// Processes that were detached while they ran. Their later children are not followed.
    LetGo,
    /// Programs that were not measured because they have more matching functions than the limit.
    TooMany,
    /// Loads and unloads of libraries while a pattern was pending and no command watched.
    Loads,
    /// Libraries that were loaded later and contain requested functions that are not measured.
    Libraries,
    /// Functions that were taken out because something else had changed their code.
    TakenOut,
    /// Patches of a function that were replaced while it was measured.
    Replaced,
    /// Sessions whose profile could not be read.
    Profiles,
}

/// The note on [`Unseen::Programs`] if the program that replaced the target's is not known.
pub const LEFT: &str =
    "the program was replaced by another one (exec), and was measured until then";

/// For each kind of loss, by its name: the number of the programs, processes or other things that
/// it counts.
pub type AllUnseen = BTreeMap<String, u64>;

impl Unseen {
    /// All kinds.
    const ALL: [Self; 10] = [
        Self::Programs,
        Self::Processes,
        Self::Orphans,
        Self::LetGo,
        Self::TooMany,
        Self::Loads,
        Self::Libraries,
        Self::TakenOut,
        Self::Replaced,
        Self::Profiles,
    ];

    /// The key of this kind in [`Losses::unseen`](super::Losses::unseen).
    pub const fn name(self) -> &'static str {
        match self {
            Self::Programs => "programs",
            Self::Processes => "processes",
            Self::Orphans => "orphans",
            Self::LetGo => "let-go",
            Self::TooMany => "too-many",
            Self::Loads => "loads",
            Self::Libraries => "libraries",
            Self::TakenOut => "taken-out",
            Self::Replaced => "replaced",
            Self::Profiles => "profiles",
        }
    }

    /// Adds `n` to the count of this kind in `all`.
    pub fn count(self, all: &mut AllUnseen, n: u64) {
        if n > 0 {
            let known = all.entry(self.name().to_owned()).or_default();
            *known = known.saturating_add(n);
        }
    }

    /// What is counted, in the singular and the plural, and what happened to it.
    fn words(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Programs => (
                "program",
                "programs",
                "not measured after replacing a measured program (exec)",
            ),
            Self::Processes => ("process", "processes", "not measured"),
            Self::Orphans => (
                "process",
                "processes",
                "not measured because the parent was killed during the fork",
            ),
            Self::LetGo => (
                "process",
                "processes",
                "released before the end (LeakSanitizer): later children are not measured",
            ),
            Self::TooMany => (
                "program",
                "programs",
                "not measured: too many functions matched",
            ),
            Self::Loads => (
                "change",
                "changes",
                "of the loaded libraries not seen, while patterns were pending and no command \
                watched",
            ),
            Self::Libraries => (
                "library",
                "libraries",
                "loaded later with matching functions that are not measured",
            ),
            Self::TakenOut => (
                "function",
                "functions",
                "taken out while the program ran, and not measured since",
            ),
            Self::Replaced => (
                "time",
                "times",
                "the patches of a measured function were replaced: its calls in those milliseconds \
                are missing, and calls in progress have no end",
            ),
            Self::Profiles => ("session", "sessions", "whose counts could not be read"),
        }
    }
}

/// A phrase for each kind with a count above 0.
pub fn unseen_phrases(all: &AllUnseen) -> impl Iterator<Item = String> {
    all.iter().filter(|(_, n)| **n > 0).map(|(name, n)| {
        let kind = Unseen::ALL.into_iter().find(|kind| kind.name() == name);
        match (kind.map(Unseen::words), n) {
            (Some((one, _, what)), 1) => format!("1 {one} {what}"),
            (Some((_, many, what)), n) => format!("{n} {many} {what}"),
            // A kind of loss from another build of ipath.
            (None, n) => format!("{n} of {name}"),
        }
    })
}

/// The name and count of each kind, including kinds with the count 0. Kinds of other builds come
/// last.
pub fn unseen_counts(all: &AllUnseen) -> impl Iterator<Item = (&str, u64)> {
    let is_known = |name: &str| Unseen::ALL.iter().any(|kind| kind.name() == name);
    let known = Unseen::ALL.iter().map(|kind| kind.name());
    let known = known.map(|name| (name, all.get(name).copied().unwrap_or(0)));
    let others = all.iter().map(|(name, &n)| (name.as_str(), n));
    known.chain(others.filter(move |(name, _)| !is_known(name)))
}

/// Adds the counts of `other` to those of `sum`, kind by kind.
pub fn add_unseen(sum: &mut AllUnseen, other: &AllUnseen) {
    for (kind, &n) in other {
        let known = sum.entry(kind.clone()).or_default();
        *known = known.saturating_add(n);
    }
}
