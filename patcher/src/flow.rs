//! Control flow of one function: its instructions, its branch targets, and its exits.

mod address_set;
mod arrivals;
mod asked;
mod before;
mod bounds;
mod branch;
mod callees;
mod continued;
mod contradicted;
mod described;
mod epilogue;
mod exit;
mod fibers;
mod foreign;
mod frames;
mod go_frames;
mod graph;
mod height;
mod labels;
mod leave;
mod module;
mod past_arguments;
mod popping;
mod reach;
mod recipe;
mod recovery;
mod registered;
mod returning;
mod scan;
mod sweep;
mod switches;
mod tables;

use std::ops::Range;

use crate::addr::Svma;
use crate::function::Function;
use crate::image::Image;
use crate::isa::Insn;
use branch::branches;

pub use arrivals::{
    Arrivals, CallBefore, call_before, is_injected_by_go, program_main, replaces_frame,
    resumes_builtin,
};
pub use asked::{
    callees_of, callees_seen, frame_seen, frames_around, frames_called, frames_of, frames_seen,
};
pub use before::{Base, FrameBefore, frames_before};
pub use bounds::{unnamed_functions, unnamed_recipes};
pub use callees::{Callees, callees};
pub use contradicted::contradicted;
pub use exit::{Leave, LeaveKind};
pub(crate) use foreign::{foreign_short_branch, targets_of_foreign_branches};
pub use frames::frames;
pub use graph::{Doubt, Flow};
pub(crate) use height::Heights;
pub(crate) use leave::{is_fragment, returns_to_caller, runs_on};
pub use module::ModuleContext;
pub use recipe::{Frame, Recipe, recipes};
pub use registered::{Bases, Form, Registered, registered};
pub(crate) use sweep::one;
pub use switches::JumpTargets;

impl Flow {
    /// Analyzes `function`. `None` if the file has no bytes for a part of it.
    pub fn of(image: &Image<'_>, context: &ModuleContext<'_>, function: &Function) -> Option<Self> {
        let mut ranges = vec![function.range.clone()];
        ranges.extend(function.cold.iter().cloned());
        loop {
            let flow = Self::of_ranges(image, context, ranges.clone())?;
            // In a stripped file, a cold part has no name, only its own unwind entry. It is found
            // through a jump to it while the function's frame still exists.
            let found = leave::unnamed_parts(image, context, &flow);
            if found.is_empty() {
                return Some(flow);
            }
            ranges.extend(found);
        }
    }

    fn of_ranges(
        image: &Image<'_>,
        context: &ModuleContext<'_>,
        ranges: Vec<Range<Svma>>,
    ) -> Option<Self> {
        let swept = sweep::linear(image, &ranges)?;
        let start = ranges[0].start;
        let entry = match swept.insns.first() {
            Some(first) if first.at() == start.0 && first.is_landing_marker() => Svma(first.end()),
            _ => start,
        };
        let reached = reach::from(image, context, &ranges, &swept);
        let agree = swept.complete && reached.desync.is_none();
        let insns = if agree { swept.insns } else { reached.insns };
        let mut doubt = None;
        if reached.unexplained {
            doubt = Some(Doubt::IndirectJump);
        }
        if !agree {
            doubt = Some(Doubt::DataInCode);
        }
        let mut flow = Self {
            ranges,
            entry,
            branches: Vec::new(),
            marks: reached.marks,
            switched: reached.switched,
            jumps: reached.jumps,
            recovered: reached.recovered,
            is_go: !context.deferreturns(image).is_empty(),
            insns,
            leaves: Vec::new(),
            has_labels: reached.has_labels,
            reentries: Vec::new(),
            doubtful: reached.doubtful,
            reached: reached.visited,
            unexplained: reached.unexplained,
            doubt,
        };
        flow.find_branches();
        flow.leaves = leave::all(image, &flow);
        Some(flow)
    }

    fn find_branches(&mut self) {
        self.branches = branches(&self.insns);
        for insn in &self.insns {
            if insn.is_jump() && self.is_entry(insn.target()) {
                self.reentries.push(Svma(insn.at()));
            }
        }
        let markers = self.insns.iter().filter(|insn| insn.is_landing_marker());
        let markers: Vec<u64> = markers.map(Insn::at).collect();
        self.switched
            .retain(|at| markers.binary_search(at).is_err());
        self.marks.extend(markers);
        self.marks.sort_unstable();
        self.marks.dedup();
    }
}
