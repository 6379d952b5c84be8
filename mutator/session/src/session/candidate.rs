//! A function to be patched, with its plan.

use abi::schema::SCHEMA_COUNT;
use patcher::function::Function;
use patcher::plan::{FunctionPlan, RefuseReason};
use patcher::select::name_of_start;
use patcher::{Bias, Svma};

use super::elsewhere::Elsewhere;
use super::refusal::Refusal;
use crate::segment::{Forking, Role};
use ipath_symbols::images::OpenImage;

/// A function that a pattern names.
pub struct Candidate {
    /// Index of the module in the list it was selected from; 0 for a file.
    pub module: usize,
    /// The module's file.
    pub image: &'static OpenImage,
    /// Address in the process minus address in the file.
    pub bias: Bias,
    /// The function with its plan.
    pub plan: FunctionPlan,
    /// Its demangled name; `module+0xADDR` where it has none.
    pub name: String,
    /// Where calls go that do not come to it.
    pub elsewhere: Elsewhere,
    /// Why it gets probes.
    pub role: Role,
    /// The children that it may create, if it is measured.
    pub children: Option<Forking>,
    /// True if breakpoints may lead to what nothing else can.
    pub traps: bool,
    /// Where its arguments and its return value are: [`abi::value`].
    pub values: u64,
    /// Why one of them that is asked for cannot be read.
    pub unreadable: Option<String>,
    /// True where nothing is known of them, and registers are read as they are.
    pub is_bare: bool,
    /// The points that its plan has hooks for, by number.
    pub points: Vec<Point>,
    /// The schema that it is measured by from now on.
    pub schema: u8,
    /// The function of the session whose exits its plan has, and nothing else.
    pub exits_of: Option<usize>,
}

/// The file in which a candidate is found.
#[derive(Clone, Copy)]
pub(super) struct Origin {
    /// Index of the module in the list it was selected from; 0 for a file.
    pub(super) module: usize,
    /// The module's file.
    pub(super) image: &'static OpenImage,
    /// Address in the process minus address in the file.
    pub(super) bias: Bias,
}

/// A function's place: no two have the same.
pub(super) type FunctionPlace = (Bias, Svma);

impl Candidate {
    /// A function with this plan, of which nothing more is known.
    pub(super) fn new(origin: Origin, role: Role, name: String, plan: FunctionPlan) -> Self {
        Self {
            module: origin.module,
            image: origin.image,
            bias: origin.bias,
            plan,
            name,
            elsewhere: Elsewhere::default(),
            role,
            children: None,
            traps: false,
            values: 0,
            unreadable: None,
            is_bare: false,
            points: Vec::new(),
            schema: SCHEMA_COUNT,
            exits_of: None,
        }
    }

    /// The file it is in.
    pub(super) fn origin(&self) -> Origin {
        Origin {
            module: self.module,
            image: self.image,
            bias: self.bias,
        }
    }

    /// Why it cannot be instrumented.
    pub fn refused(&self) -> Option<Refusal> {
        let refused = self.plan.refused().map(|(_, reason)| reason.into());
        refused.or_else(|| self.unreadable())
    }

    pub(super) fn unreadable(&self) -> Option<Refusal> {
        self.unreadable.clone().map(Refusal::Value)
    }

    pub(super) fn place(&self) -> FunctionPlace {
        (self.bias, self.plan.function.range.start)
    }
}

/// The demangled name, or where the function stands in its module.
pub(super) fn display_name(function: &Function, module: &str) -> String {
    if function.linkage.is_empty() {
        name_of_start(module, function.range.start)
    } else {
        function.name()
    }
}

/// A point.
#[derive(Clone)]
pub struct Point {
    /// Where.
    pub(super) at: Svma,
    /// What it is called.
    pub(super) name: String,
    /// Where its function has its frame: [`abi::point::Standing`].
    pub(super) standing: u64,
    /// Why it cannot be had, whatever else is.
    pub(super) refused: Option<RefuseReason>,
    /// Why it cannot without a breakpoint.
    pub(super) no_room: Option<RefuseReason>,
}
