//! The ways in which paths form a tree.

use super::sites::{SiteId, Sites};

/// The arrangement of paths as a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Shape {
    /// Functions, their callers below them, and so on.
    #[default]
    Callers,
    /// The roots of the stacks, their callees below them, down to the functions and their threads.
    FromRoot,
    /// Each path is one row.
    Flat,
    /// Threads or processes, their functions, and their callers.
    Threads,
}

impl Shape {
    pub(crate) const ALL: [Self; 4] = [Self::Callers, Self::FromRoot, Self::Flat, Self::Threads];

    pub(crate) fn name(self, of_processes: bool) -> &'static str {
        match self {
            Self::Threads if of_processes => "processes",
            Self::Callers => "callers",
            Self::FromRoot => "from the root",
            Self::Flat => "flat",
            Self::Threads => "threads",
        }
    }

    /// The text between two names of a row.
    pub(crate) fn arrow(self) -> &'static str {
        match self {
            Self::FromRoot => " > ",
            _ => " < ",
        }
    }

    /// The heading of the rows. Names processes instead of threads if processes are kept apart.
    pub(crate) fn title(self, of_processes: bool) -> &'static str {
        match self {
            Self::Threads if of_processes => "PROCESS, FUNCTION < CALLERS",
            Self::Callers => "FUNCTION < CALLERS",
            Self::FromRoot => "ROOT > CALLED",
            Self::Flat => "CALL PATH",
            Self::Threads => "THREAD, FUNCTION < CALLERS",
        }
    }

    /// Reorders a path for this shape. `path` is the function, its callers outwards, then its
    /// thread.
    pub(super) fn of(self, path: &[SiteId], sites: &Sites) -> Vec<SiteId> {
        let is_thread = |&&site: &&SiteId| sites.get(site).is_thread();
        let Some((&function, rest)) = path.split_first() else {
            return Vec::new();
        };
        let thread = rest.last().filter(is_thread).copied();
        let callers = &rest[..rest.len() - usize::from(thread.is_some())];
        match self {
            Self::Callers | Self::Flat => path.to_vec(),
            Self::FromRoot => {
                let callers = callers.iter().rev().copied();
                callers.chain([function]).chain(thread).collect()
            }
            Self::Threads => {
                let callers = callers.iter().copied();
                thread
                    .into_iter()
                    .chain([function])
                    .chain(callers)
                    .collect()
            }
        }
    }
}
