//! A selected function.

use std::ops::Range;

use super::demangle::demangle;
use super::names;
use crate::addr::Svma;

/// The kind of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FunctionKind {
    /// Ordinary code with a name.
    Code,
    /// A resolver: the loader calls it to find the function with this name.
    Ifunc,
    /// Code without a name, known from its frame description.
    UnwindOnly,
}

/// A selected function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// The main part of the function's code.
    pub range: Range<Svma>,
    /// The function's linkage name; empty if it is known from unwind tables only.
    pub linkage: String,
    /// Other linkage names of the same code.
    pub aliases: Vec<String>,
    /// The kind of the function.
    pub kind: FunctionKind,
    /// The function's split-off parts, by address: `name.cold`.
    pub cold: Vec<Range<Svma>>,
}

impl Function {
    /// A function of which only the range is known.
    pub fn nameless(range: Range<Svma>) -> Self {
        Self {
            range,
            linkage: String::new(),
            aliases: Vec::new(),
            kind: FunctionKind::UnwindOnly,
            cold: Vec::new(),
        }
    }

    /// The ranges of the function's code: the main part, then the others.
    pub fn ranges(&self) -> impl Iterator<Item = &Range<Svma>> {
        std::iter::once(&self.range).chain(&self.cold)
    }

    /// True if `at` is in any part of the function.
    pub fn contains(&self, at: Svma) -> bool {
        self.ranges().any(|range| range.contains(&at))
    }

    /// The size of the function's main part, in bytes.
    pub fn size(&self) -> u64 {
        self.range.end.0 - self.range.start.0
    }

    /// The function's demangled name, as in the source; empty if it has no name.
    pub fn name(&self) -> String {
        demangle(&self.linkage)
    }

    /// The function's linkage name without a clone's suffix, and that suffix: `foo.constprop.0` is
    /// `foo` and `constprop.0`. `None` if it has no such suffix.
    pub fn base_and_clone(&self) -> (&str, Option<&str>) {
        names::base_and_clone(&self.linkage)
    }
}
