//! Control flow of one function: its instructions, where branches land, where it is left.

mod address_set;
mod bounds;
mod continued;
mod described;
mod fibers;
mod foreign;
mod frames;
mod go_frames;
mod height;
mod leave;
mod module;
mod reach;
mod recipe;
mod recovery;
mod returning;
mod scan;
mod sweep;
mod tables;
mod trace;

use std::collections::HashSet;
use std::ops::Range;

use iced_x86::{Code, FlowControl, Instruction, Mnemonic};

use crate::addr::Svma;
use crate::function::Function;
use crate::image::Image;

pub use bounds::{unnamed_function, unnamed_recipes};
pub(crate) use foreign::foreign_short_branch;
pub use frames::frames;
pub use leave::{Leave, LeaveKind};
pub(crate) use leave::{is_fragment, runs_on};
pub use module::ModuleContext;
pub use recipe::{Frame, Recipe, recipes};
pub(crate) use sweep::one;
use tables::Jumps;

/// Why the code of a function is not known well enough to move anything but its exits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// A linear sweep does not end on the function's end, or paths disagree on where instructions
    /// start.
    DataInCode,
    /// Where an indirect jump lands could not be bounded.
    IndirectJump,
}

/// A direct branch of the function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Branch {
    /// Where it lands.
    pub to: u64,
    /// The address of the branch instruction.
    pub from: u64,
}

/// The control flow of one function.
#[derive(Debug)]
pub struct Flow {
    /// The function's own addresses: the main part first, then its cold parts.
    pub ranges: Vec<Range<Svma>>,
    /// Where the entry hook belongs: the first instruction, or the one behind `endbr64`.
    pub entry: Svma,
    /// All instructions, ascending.
    pub insns: Vec<Instruction>,
    /// Direct branches, sorted by where they land.
    pub branches: Vec<Branch>,
    /// Other addresses that control can arrive at: jump tables, landing pads, address-taken labels,
    /// `endbr64`, where Go recovers. Sorted.
    pub marks: Vec<u64>,
    /// Those of them where control arrives from the function's own jump tables alone. Sorted.
    switched: Vec<u64>,
    /// What is known of its indirect jumps.
    jumps: Jumps,
    /// Those of the marks where it goes on after a panic that it has recovered from, ascending.
    recovered: Vec<u64>,
    /// Is it a function of a Go program? Then it jumps to its entry only when its stack has been grown, with
    /// nothing done before.
    is_go: bool,
    /// Where the function is left, ascending.
    pub leaves: Vec<Leave>,
    /// Is the address of some instruction inside the function taken, by a `lea` or in data?
    pub has_labels: bool,
    /// Direct jumps of the function to its own entry: loops, not calls.
    pub reentries: Vec<Svma>,
    /// Bytes that may be data, although they are instructions just as well: known by a label only.
    /// Whatever stands here is left alone.
    doubtful: HashSet<u64>,
    /// Those of the instructions that some path reaches.
    reached: HashSet<u64>,
    /// Is there an indirect jump of which it is not known where it lands?
    unexplained: bool,
    /// Set where only an exit instruction itself and its padding may be overwritten.
    pub doubt: Option<Doubt>,
}

impl Flow {
    /// Analyses `function`; `None` where the file has no bytes for it.
    pub fn of(image: &Image<'_>, context: &ModuleContext<'_>, function: &Function) -> Option<Self> {
        let mut ranges = vec![function.range.clone()];
        ranges.extend(function.cold.iter().cloned());
        loop {
            let flow = Self::of_ranges(image, context, ranges.clone())?;
            // In a stripped file a cold part has no name, only an unwind entry of its own; it
            // shows when it is jumped to while the frame still stands.
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
            Some(first) if first.ip() == start.0 && is_landing_marker(first) => {
                Svma(first.next_ip())
            }
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
            if is_jump(insn) && self.is_entry(insn.near_branch_target()) {
                self.reentries.push(Svma(insn.ip()));
            }
            if is_landing_marker(insn) {
                self.marks.push(insn.ip());
                self.switched.retain(|&at| at != insn.ip());
            }
        }
        self.marks.sort_unstable();
        self.marks.dedup();
    }

    /// Is `at` an address at which the entry hook is still ahead?
    pub fn is_entry(&self, at: u64) -> bool {
        (self.ranges[0].start.0..=self.entry.0).contains(&at)
    }

    /// Does a path reach the instruction at `at`, as far as paths are known? What none reaches is
    /// either dead or data.
    pub fn is_live(&self, at: u64) -> bool {
        self.unexplained || self.reached.contains(&at)
    }

    /// Is the instruction at `at` known to be one? A label alone may mark data.
    pub fn is_certain(&self, at: u64) -> bool {
        self.is_live(at) && !self.doubtful.contains(&at)
    }

    /// May `insn` be overwritten as far as the bytes are concerned: is it code, or a no-op that aligns
    /// code? Where there may be data amid the code, a no-op that no path reaches may be data, too.
    pub fn may_be_moved(&self, insn: &Instruction) -> bool {
        let aligns = insn.mnemonic() == Mnemonic::Nop && self.doubtful.is_empty();
        self.is_certain(insn.ip()) || aligns
    }

    /// Does `at` belong to the function?
    pub fn contains(&self, at: u64) -> bool {
        self.ranges.iter().any(|r| r.contains(&Svma(at)))
    }

    /// Does a direct branch of the function land on `at`?
    pub fn is_target(&self, at: u64) -> bool {
        let first = self.branches.partition_point(|b| b.to < at);
        self.branches.get(first).is_some_and(|b| b.to == at)
    }

    /// Can control arrive at `at` other than by a direct branch?
    pub fn is_mark(&self, at: u64) -> bool {
        self.marks.binary_search(&at).is_ok()
    }

    /// The index of the instruction that starts at `at`.
    pub fn index_of(&self, at: u64) -> Option<usize> {
        self.insns.binary_search_by_key(&at, Instruction::ip).ok()
    }

    /// The instructions that start in `range`, with the index of the first.
    pub fn insns_in(&self, range: &Range<u64>) -> (usize, &[Instruction]) {
        let first = self.insns.partition_point(|i| i.ip() < range.start);
        let last = self.insns.partition_point(|i| i.ip() < range.end);
        (first, &self.insns[first..last.max(first)])
    }
}

/// The direct branches among `insns`, sorted by where they land.
fn branches(insns: &[Instruction]) -> Vec<Branch> {
    let mut branches: Vec<_> = insns
        .iter()
        .filter(|insn| is_jump(insn) || insn.mnemonic() == Mnemonic::Xbegin)
        .map(|insn| Branch {
            to: insn.near_branch_target(),
            from: insn.ip(),
        })
        .collect();
    branches.sort_unstable();
    branches
}

/// Is it a direct jump, conditional or not?
fn is_jump(insn: &Instruction) -> bool {
    matches!(
        insn.flow_control(),
        FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
    )
}

/// `endbr64`, or `endbr32` in its place: control may arrive here from anywhere.
fn is_landing_marker(insn: &Instruction) -> bool {
    matches!(insn.code(), Code::Endbr64 | Code::Endbr32)
}

/// Does nothing ever run behind `insn` on its account?
pub fn ends_block(insn: &Instruction) -> bool {
    matches!(
        insn.flow_control(),
        FlowControl::UnconditionalBranch
            | FlowControl::IndirectBranch
            | FlowControl::Return
            | FlowControl::Exception
    ) && insn.code() != Code::Int3
        || insn.code() == Code::Hlt
}
