//! Known losses without a call count. They are counted in other units, for example processes or
//! libraries.

use std::collections::BTreeMap;

/// A kind of loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unseen {
    /// Programs that replaced a measured program and were not followed.
    Programs,
    /// Children and programs of a followed process that could not be measured.
    Processes,
    /// Processes whose parent is not known.
    Orphans,
    /// Processes that were detached while they ran. Their later children are not followed.
    LetGo,
    /// Programs with more matching functions than the limit.
    TooMany,
    /// Loads and unloads of libraries while a pattern was pending and no command watched.
    Loads,
    /// Libraries that were loaded later and have requested functions.
    Libraries,
    /// Functions that were removed while the program ran.
    TakenOut,
    /// Sessions whose profile could not be read.
    Profiles,
}

/// The note on [`Unseen::Programs`] if nothing is known of the other program.
pub const LEFT: &str = "another program has been executed (exec) in the place of this one, which was measured until then";

/// The count of each kind, by its name.
pub type AllUnseen = BTreeMap<String, u64>;

impl Unseen {
    const ALL: [Self; 9] = [
        Self::Programs,
        Self::Processes,
        Self::Orphans,
        Self::LetGo,
        Self::TooMany,
        Self::Loads,
        Self::Libraries,
        Self::TakenOut,
        Self::Profiles,
    ];

    /// Its key in [`Losses::unseen`](super::Losses::unseen).
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
            Self::Profiles => "profiles",
        }
    }

    /// Adds `n` to its count.
    pub fn count(self, all: &mut AllUnseen, n: u64) {
        if n > 0 {
            let known = all.entry(self.name().to_owned()).or_default();
            *known = known.saturating_add(n);
        }
    }

    fn words(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Programs => (
                "program",
                "programs",
                "executed in the place of one that was measured, and not followed",
            ),
            Self::Processes => ("process", "processes", "not measured"),
            Self::Orphans => (
                "process",
                "processes",
                "not measured whose parent was killed as it began them",
            ),
            Self::LetGo => (
                "process",
                "processes",
                "let go before the end: what it started then is not measured",
            ),
            Self::TooMany => (
                "program",
                "programs",
                "not measured: too many functions matched",
            ),
            Self::Loads => (
                "change",
                "changes",
                "of the loaded libraries not looked at, while patterns waited and no command watched",
            ),
            Self::Libraries => (
                "library",
                "libraries",
                "loaded later with functions that were asked for, and not measured",
            ),
            Self::TakenOut => (
                "function",
                "functions",
                "taken out while the program ran, and not measured from then on",
            ),
            Self::Profiles => ("session", "sessions", "whose counts could not be read"),
        }
    }
}

/// One phrase for each kind.
pub fn unseen_phrases(all: &AllUnseen) -> impl Iterator<Item = String> {
    all.iter().filter(|(_, n)| **n > 0).map(|(name, n)| {
        let kind = Unseen::ALL.into_iter().find(|kind| kind.name() == name);
        match (kind.map(Unseen::words), n) {
            (Some((one, _, what)), 1) => format!("1 {one} {what}"),
            (Some((_, many, what)), n) => format!("{n} {many} {what}"),
            // A kind from another build of ipath.
            (None, n) => format!("{n} of {name}"),
        }
    })
}

/// The count of each kind, 0 included, and of the kinds of other builds.
pub fn unseen_counts(all: &AllUnseen) -> impl Iterator<Item = (&str, u64)> {
    let is_known = |name: &str| Unseen::ALL.iter().any(|kind| kind.name() == name);
    let known = Unseen::ALL.iter().map(|kind| kind.name());
    let known = known.map(|name| (name, all.get(name).copied().unwrap_or(0)));
    let others = all.iter().map(|(name, &n)| (name.as_str(), n));
    known.chain(others.filter(move |(name, _)| !is_known(name)))
}

/// Adds one count to another.
pub fn add_unseen(sum: &mut AllUnseen, other: &AllUnseen) {
    for (kind, &n) in other {
        let known = sum.entry(kind.clone()).or_default();
        *known = known.saturating_add(n);
    }
}
