//! Observations of where time goes: sampled stacks and measured call paths.

use patcher::Avma;

use super::Cost;

/// A stack at which time was sampled. Functions are named by their first addresses.
#[derive(Clone, Debug, PartialEq)]
pub struct Stack {
    /// The first addresses of the functions in the process, the innermost first.
    pub functions: Vec<Avma>,
    /// Index in `functions` of the innermost function that the time may be attributed to.
    pub charged: usize,
    /// The estimated time, in ns.
    pub cost: Cost,
}

/// A call site on a measured path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Site {
    /// The calling function.
    pub function: Avma,
    /// An address in the call instruction.
    pub at: Avma,
}

/// A call path into a measured function.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredPath {
    /// From the function's caller outwards.
    pub callers: Vec<Site>,
    /// The number of calls that returned.
    pub calls: u64,
    /// Exact time in the function, without measured functions that it calls, in ns.
    pub cost: Cost,
    /// The part of `cost` on paths where threads wait for work, in ns: the time to begin and end
    /// such waits.
    pub idle: f64,
}

impl MeasuredPath {
    /// The path as a stack with another cost.
    pub(super) fn stack(&self, function: Avma, cost: Cost) -> Stack {
        let callers = self.callers.iter().map(|site| site.function);
        Stack {
            functions: std::iter::once(function).chain(callers).collect(),
            charged: 0,
            cost,
        }
    }
}

/// The measurements of a function during a window.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Its first address in the process.
    pub function: Avma,
    /// Its calls by path.
    pub paths: Vec<MeasuredPath>,
}

impl Measured {
    /// The number of calls that returned.
    pub fn calls(&self) -> u64 {
        let calls = self.paths.iter().map(|path| path.calls);
        calls.fold(0, u64::saturating_add)
    }

    /// The time of all paths, in ns.
    pub fn cost(&self) -> Cost {
        self.paths.iter().map(|path| path.cost).sum()
    }
}

/// A period in which the same functions were measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Window {
    /// Its length, in ns.
    pub ns: u64,
    /// The time of all threads that ran, without the time in which they waited for work, in ns.
    pub whole: Cost,
    /// The overhead of measuring, as a share of the CPU time.
    pub overhead: f64,
    /// The overhead as a share of one processor.
    pub processor: f64,
    /// The measurements of each function.
    pub measured: Vec<Measured>,
}
