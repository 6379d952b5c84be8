//! Obstacles that keep functions from being patched at the moment.

use std::collections::BTreeSet;
use std::fmt;

use patcher::Avma;
use patcher::plan::RefuseReason;

use ipath_target::process::Tid;

/// The functions that cannot be patched at this moment, while others can.
#[derive(Debug)]
pub struct InTheWay {
    /// Ids of the functions.
    functions: BTreeSet<usize>,
    /// The obstacle for one of them.
    what: What,
}

/// An obstacle.
#[derive(Debug)]
enum What {
    /// A thread that cannot be moved is in the window of this function.
    Thread(String, Tid),
    /// The code here is not the file's.
    Text(Avma),
    /// A signal handler will return to a jump of earlier patches here.
    Interrupted(Avma),
    /// The code here is a jump of the session that the parent had.
    Inherited(Avma),
    /// The library of this name has been unloaded.
    Unloaded(String),
}

impl InTheWay {
    /// Code that another tool has changed.
    pub(super) fn text(functions: BTreeSet<usize>, at: Avma) -> Self {
        Self {
            functions,
            what: What::Text(at),
        }
    }

    /// Code with jumps of the session that the parent had at the fork.
    pub(super) fn inherited(functions: BTreeSet<usize>, at: Avma) -> Self {
        Self {
            functions,
            what: What::Inherited(at),
        }
    }

    /// A library of this name was unloaded after the functions were found.
    pub(super) fn unloaded(functions: BTreeSet<usize>, library: String) -> Self {
        Self {
            functions,
            what: What::Unloaded(library),
        }
    }

    /// A thread in the window of the function `name`.
    pub(super) fn thread(functions: BTreeSet<usize>, name: String, tid: Tid) -> Self {
        Self {
            functions,
            what: What::Thread(name, tid),
        }
    }

    /// The obstacle, if changed code is a jump at `at` to which a signal handler will return.
    pub(super) fn or_interrupted(self, at: Avma) -> Self {
        match self.what {
            What::Text(_) => Self {
                what: What::Interrupted(at),
                ..self
            },
            _ => self,
        }
    }

    /// Ids of the functions.
    pub(super) fn functions(&self) -> &BTreeSet<usize> {
        &self.functions
    }

    /// True if the obstacle may disappear by itself within a moment.
    pub(super) fn passes(&self) -> bool {
        matches!(self.what, What::Thread(..) | What::Interrupted(_))
    }

    /// True if their code has jumps of the session that the parent had.
    pub fn is_inherited(&self) -> bool {
        matches!(self.what, What::Inherited(_))
    }

    /// True if the functions are no longer mapped.
    pub fn is_unloaded(&self) -> bool {
        matches!(self.what, What::Unloaded(_))
    }

    /// The reason for refusing the functions.
    pub(super) fn reason(&self) -> RefuseReason {
        match self.what {
            What::Thread(..) | What::Interrupted(_) => RefuseReason::Occupied,
            What::Text(_) => RefuseReason::TextChanged,
            What::Inherited(_) => RefuseReason::InheritedJumps,
            What::Unloaded(_) => RefuseReason::Unloaded,
        }
    }
}

impl fmt::Display for InTheWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.what {
            What::Thread(name, tid) => write!(
                f,
                "thread {tid} stays inside the code of {name} that would be overwritten"
            ),
            What::Text(at) => write!(
                f,
                "the code at {at} is not what its file says: something else has patched it"
            ),
            What::Interrupted(at) => write!(
                f,
                "a signal handler has interrupted code at {at} that would be overwritten, and has \
                not returned"
            ),
            What::Inherited(at) => write!(
                f,
                "the code at {at} has jumps of its parent's session from before the fork: they do \
                nothing, and stay until the process calls exec or ends"
            ),
            What::Unloaded(library) => {
                write!(
                    f,
                    "{library} has been unloaded since its functions were found"
                )
            }
        }
    }
}
