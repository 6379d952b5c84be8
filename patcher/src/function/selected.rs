//! A function as it is selected.

use std::ops::Range;

use super::demangle::demangle;
use super::names;
use crate::addr::Svma;

/// What a function is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FunctionKind {
    /// Ordinary code with a name.
    Code,
    /// A resolver: the loader calls it to find the function that its name stands for.
    Ifunc,
    /// Code without a name, known from its frame description.
    UnwindOnly,
}

/// A function as it is selected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its code.
    pub range: Range<Svma>,
    /// Its name as the linker knows it; empty where it is known from unwind tables alone.
    pub linkage: String,
    /// Other names of the same code.
    pub aliases: Vec<String>,
    /// What it is.
    pub kind: FunctionKind,
    /// Its parts elsewhere, by address: `name.cold`.
    pub cold: Vec<Range<Svma>>,
}

impl Function {
    /// One of which no more is known than where it is.
    pub fn nameless(range: Range<Svma>) -> Self {
        Self {
            range,
            linkage: String::new(),
            aliases: Vec::new(),
            kind: FunctionKind::UnwindOnly,
            cold: Vec::new(),
        }
    }

    /// Its code: the main part, then the others.
    pub fn ranges(&self) -> impl Iterator<Item = &Range<Svma>> {
        std::iter::once(&self.range).chain(&self.cold)
    }

    /// True if `at` is in any of its parts.
    pub fn contains(&self, at: Svma) -> bool {
        self.ranges().any(|range| range.contains(&at))
    }

    /// Bytes of its main part.
    pub fn size(&self) -> u64 {
        self.range.end.0 - self.range.start.0
    }

    /// The name as a reader of the source knows it.
    pub fn name(&self) -> String {
        demangle(&self.linkage)
    }

    /// The linkage name without the suffix of a clone, and that suffix: `foo.constprop.0` is
    /// `foo` and `constprop.0`.
    pub fn base_and_clone(&self) -> (&str, Option<&str>) {
        names::base_and_clone(&self.linkage)
    }
}
