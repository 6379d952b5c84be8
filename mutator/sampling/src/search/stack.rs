//! What is known of where time goes: stacks that were sampled, and call paths that were measured.

use patcher::Avma;

use super::Cost;

/// A stack at which time was sampled. Functions are named by their first addresses.
#[derive(Clone, Debug, PartialEq)]
pub struct Stack {
    /// The innermost function first.
    pub functions: Vec<Avma>,
    /// Index of the innermost function that the time may be put down to.
    pub charged: usize,
    /// The time, estimated.
    pub cost: Cost,
}

/// A call site on a measured path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Site {
    /// The function that calls.
    pub function: Avma,
    /// An address in the call instruction.
    pub at: Avma,
}

/// A call path into a measured function.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredPath {
    /// From the function's caller outwards.
    pub callers: Vec<Site>,
    /// Calls that returned.
    pub calls: u64,
    /// Time in the function but not in measured functions that it calls, exact.
    pub cost: Cost,
    /// The part of `cost` at paths on which threads wait for work, ns: the time to begin and end such waits.
    pub idle: f64,
}

impl MeasuredPath {
    /// The same as a stack with another cost.
    pub(super) fn stack(&self, function: Avma, cost: Cost) -> Stack {
        let callers = self.callers.iter().map(|site| site.function);
        Stack {
            functions: std::iter::once(function).chain(callers).collect(),
            charged: 0,
            cost,
        }
    }
}

/// A function as it was measured in a while.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Its first address.
    pub function: Avma,
    /// Its calls by path.
    pub paths: Vec<MeasuredPath>,
}

impl Measured {
    /// Calls that returned.
    pub fn calls(&self) -> u64 {
        let calls = self.paths.iter().map(|path| path.calls);
        calls.fold(0, u64::saturating_add)
    }

    /// Time of all paths.
    pub fn cost(&self) -> Cost {
        self.paths.iter().map(|path| path.cost).sum()
    }
}

/// A while in which the same functions were measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Window {
    /// How long it was, ns.
    pub ns: u64,
    /// The time of all threads that ran, less the time in which they waited for work.
    pub whole: Cost,
    /// What measuring took, as a share of the CPU time.
    pub overhead: f64,
    /// The overhead as a share of one processor.
    pub processor: f64,
    /// What was measured.
    pub measured: Vec<Measured>,
}
