//! The control flow of one function, as the analysis has found it.

use std::collections::HashSet;
use std::ops::Range;

use super::exit::Leave;
use super::tables::Jumps;
use crate::addr::Svma;
use crate::isa::{Branch, Insn};

/// Reasons why the code of a function is not known well enough to move anything but its exits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// A linear sweep does not end at the function's end, or paths disagree about the starts of
    /// instructions.
    DataInCode,
    /// The targets of an indirect jump could not be bounded.
    IndirectJump,
}

/// The control flow of one function.
#[derive(Debug)]
pub struct Flow {
    /// The function's own addresses: the main part first, then its cold parts.
    pub ranges: Vec<Range<Svma>>,
    /// The address for the entry hook: the first instruction, or the one after a landing marker.
    pub entry: Svma,
    /// All instructions of the function, by address.
    pub insns: Vec<Insn>,
    /// The function's direct branches, sorted by target.
    pub branches: Vec<Branch>,
    /// Other addresses at which control can arrive, sorted.
    ///
    /// These are targets of jump tables, landing pads, address-taken labels, landing markers, and
    /// the code at which Go continues after a panic.
    pub marks: Vec<u64>,
    /// The marks at which control arrives only from the function's own jump tables, sorted.
    pub(super) switched: Vec<u64>,
    /// The classification of the function's indirect jumps.
    pub(super) jumps: Jumps,
    /// The marks at which the function continues after it has recovered from a panic, ascending.
    pub(super) recovered: Vec<u64>,
    /// True for a function of a Go program. It jumps to its entry only after its stack has been
    /// grown, and before it has done anything else.
    pub(super) is_go: bool,
    /// The function's exits, ascending.
    pub leaves: Vec<Leave>,
    /// True if the address of an instruction inside the function is taken, by an instruction or in
    /// data.
    pub has_labels: bool,
    /// The addresses of direct jumps of the function to its own entry: loops, not calls.
    pub reentries: Vec<Svma>,
    /// The addresses of instructions that may be data: only a label leads to them. They are never
    /// overwritten.
    pub(super) doubtful: HashSet<u64>,
    /// The addresses of instructions that some path reaches.
    pub(super) reached: HashSet<u64>,
    /// True if there is an indirect jump whose targets are not known.
    pub(super) unexplained: bool,
    /// The reason why only exit instructions and the padding after them may be overwritten; `None`
    /// if other code may be, too.
    pub doubt: Option<Doubt>,
}

impl Flow {
    /// True if the entry hook still runs after control arrives at `at`.
    pub fn is_entry(&self, at: u64) -> bool {
        (self.ranges[0].start.0..=self.entry.0).contains(&at)
    }

    /// True if control may reach the instruction at `at`. An instruction that is not reached is
    /// dead code or data. If an indirect jump is unexplained, all instructions may be reached.
    pub fn is_live(&self, at: u64) -> bool {
        self.unexplained || self.reached.contains(&at)
    }

    /// True if the bytes at `at` are certainly an instruction. A label alone may mark data.
    pub fn is_certain(&self, at: u64) -> bool {
        self.is_live(at) && !self.doubtful.contains(&at)
    }

    /// True if `insn` may be overwritten: it is code, or a no-op that aligns code. If the function
    /// may contain data, an unreached no-op may be data too.
    pub fn may_be_moved(&self, insn: &Insn) -> bool {
        let aligns = insn.is_no_op() && self.doubtful.is_empty();
        self.is_certain(insn.at()) || aligns
    }

    /// True if `at` is in one of the function's ranges.
    pub fn contains(&self, at: u64) -> bool {
        self.ranges.iter().any(|r| r.contains(&Svma(at)))
    }

    /// Adds the addresses in this function that `body`, the code around it, may reach other than by
    /// a direct branch.
    pub(crate) fn add_arrivals_of(&mut self, body: &Self) {
        let arrivals: Vec<Svma> = body.marks.iter().copied().map(Svma).collect();
        self.add_arrivals(&arrivals);
        if body.unexplained && self.doubt.is_none() {
            self.doubt = Some(Doubt::IndirectJump);
        }
    }

    /// Adds addresses at which control may arrive from trampolines. Those of the entry stand for
    /// the entry point.
    pub(crate) fn add_ways_back(&mut self, ways: &[Svma]) {
        self.add_arrivals(ways);
        let is_led = self.entry != self.ranges[0].start;
        if is_led && ways.iter().any(|at| self.is_entry(at.0)) {
            self.mark([self.entry.0]);
        }
    }

    /// Adds addresses at which control may arrive other than by a direct branch.
    fn add_arrivals(&mut self, arrivals: &[Svma]) {
        let arrivals = arrivals.iter().map(|at| at.0);
        let arrivals: Vec<u64> = arrivals
            .filter(|&at| self.contains(at) && !self.is_entry(at))
            .collect();
        self.mark(arrivals);
    }

    fn mark(&mut self, arrivals: impl IntoIterator<Item = u64>) {
        self.marks.extend(arrivals);
        self.marks.sort_unstable();
        self.marks.dedup();
    }

    /// True if `at` is the target of a direct branch of the function.
    pub fn is_target(&self, at: u64) -> bool {
        let first = self.branches.partition_point(|b| b.to < at);
        self.branches.get(first).is_some_and(|b| b.to == at)
    }

    /// True if control can arrive at `at` other than by a direct branch.
    pub fn is_mark(&self, at: u64) -> bool {
        self.marks.binary_search(&at).is_ok()
    }

    /// True for a function of a Go program.
    pub fn is_go(&self) -> bool {
        self.is_go
    }

    /// True if control arrives at `at` only from the function's own jump tables.
    pub(crate) fn is_only_switched(&self, at: u64) -> bool {
        self.switched.binary_search(&at).is_ok()
    }

    /// The addresses at which the function continues after it has recovered from a panic,
    /// ascending.
    pub(crate) fn recovery_points(&self) -> &[u64] {
        &self.recovered
    }

    /// True if `insn` certainly jumps through one of the function's own tables.
    pub fn is_switch(&self, insn: &Insn) -> bool {
        let is_other = self.jumps.is_by_pointer(insn.at()) || self.jumps.is_away(insn.at());
        insn.is_indirect_jump() && !self.unexplained && !is_other
    }

    /// The index in `insns` of the instruction that starts at `at`; `None` if none does.
    pub fn index_of(&self, at: u64) -> Option<usize> {
        self.insns.binary_search_by_key(&at, Insn::at).ok()
    }

    /// The instructions that start in `range`, with the index of the first.
    pub fn insns_in(&self, range: &Range<u64>) -> (usize, &[Insn]) {
        let first = self.insns.partition_point(|i| i.at() < range.start);
        let last = self.insns.partition_point(|i| i.at() < range.end);
        (first, &self.insns[first..last.max(first)])
    }
}
