//! Patterns without a match.

use crate::failure::Failure;
use ipath_base::hint::{Hint, Word, Words, hint};
use ipath_session::session::{Hidden, Unmatched};

/// The commands that let patterns wait for libraries.
const WAIT: [&str; 3] = ["attach", "run", "add"];

/// A pattern without a match, for users.
pub(in crate::commands) trait UnmatchedFailure {
    /// The error in the course of `operation` on `subject`, with advice.
    fn failure(&self, operation: &str, subject: &str) -> Failure;

    /// A question that offers similar names. `None` if there are none.
    fn did_you_mean(&self) -> Option<Hint>;
}

impl UnmatchedFailure for Unmatched {
    fn failure(&self, operation: &str, subject: &str) -> Failure {
        let failure = Failure::new(operation, subject, self);
        if let Some(modules) = &self.modules {
            return failure.hint(loaded(modules));
        }
        // The name of an inlined function is not misspelled.
        if self.inlined > 0 && WAIT.contains(&operation) {
            return failure.hint("--inlined measures inlined copies");
        }
        if self.inlined > 0 || self.jit.is_some() {
            return failure;
        }
        let later = "with --pending it waits for a library that is loaded later";
        let may_wait = self.may_come && WAIT.contains(&operation);
        let later = may_wait.then(|| Hint::from(later));
        let rest = match (self.why.as_ref().map(told), later) {
            (Some(why), Some(later)) => Some(hint!("{}; {}", why, later)),
            (why, later) => why.or(later),
        };
        failure.maybe_hint(match (self.did_you_mean(), rest) {
            (Some(near), Some(rest)) => Some(hint!("{} {}", near, rest)),
            (near, rest) => near.or(rest),
        })
    }

    fn did_you_mean(&self) -> Option<Hint> {
        let near = Words(&self.near);
        (!self.near.is_empty()).then(|| hint!("did you mean {}?", near))
    }
}

fn told(why: &Hidden) -> Hint {
    match why {
        Hidden::Stripped(name) => hint!(
            "{} is stripped: only exported functions have names, unless its debug information is \
            installed or on a server in DEBUGINFOD_URLS",
            Word(name)
        ),
        Hidden::NotMapped(name) => hint!(
            "{} contains it, but other code is mapped over that part of the file",
            Word(name)
        ),
        Hidden::NoCopies(name) => hint!(
            "inlined copies in {} are not known: it has no debug information (compile with -g)",
            Word(name)
        ),
        Hidden::InFile(address) => hint!(
            "the process has no code there; an address in a file needs the file's name: {}",
            Word(address)
        ),
        Hidden::NoSource(file) => hint!(
            "no debug information of the process names {}; programs have it if they are compiled \
            with -g",
            Word(file)
        ),
        Hidden::NoPart {
            name,
            blocks,
            loops,
        } => hint!(
            "blocks of {}: {}, loops: {}, both numbered from 0; `ipath list --blocks` shows them",
            Word(name),
            *blocks,
            *loops
        ),
        Hidden::NoGraph(refusal) => hint!(
            "its basic blocks are unknown: {}",
            Hint::from(refusal.reason())
        ),
        Hidden::NoStatement(near) => {
            let near: Vec<String> = near.iter().map(u32::to_string).collect();
            hint!("lines near it with code: {}", Words(&near))
        }
    }
}

/// The advice that lists the loaded modules.
fn loaded(modules: &[String]) -> Hint {
    const SHOWN: usize = 12;
    hint!(
        "loaded modules: {}; with --pending it waits for a library that is loaded later",
        Hint::some_of(modules, SHOWN)
    )
}
