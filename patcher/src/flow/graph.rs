//! Control flow of one function, as it has been found.

use std::collections::HashSet;
use std::ops::Range;

use super::exit::Leave;
use super::tables::Jumps;
use crate::addr::Svma;
use crate::isa::{Branch, Insn};

/// Why the code of a function is not known well enough to move anything but its exits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// A linear sweep does not end on the function's end, or paths disagree on where instructions
    /// start.
    DataInCode,
    /// Where an indirect jump lands could not be bounded.
    IndirectJump,
}

/// The control flow of one function.
#[derive(Debug)]
pub struct Flow {
    /// The function's own addresses: the main part first, then its cold parts.
    pub ranges: Vec<Range<Svma>>,
    /// Where the entry hook belongs: the first instruction, or the one after a landing marker.
    pub entry: Svma,
    /// All instructions, ascending.
    pub insns: Vec<Insn>,
    /// Direct branches, sorted by where they land.
    pub branches: Vec<Branch>,
    /// Other addresses that control can arrive at: jump tables, landing pads, address-taken labels,
    /// landing markers, where Go recovers. Sorted.
    pub marks: Vec<u64>,
    /// Those of them where control arrives from the function's own jump tables alone. Sorted.
    pub(super) switched: Vec<u64>,
    /// What is known of its indirect jumps.
    pub(super) jumps: Jumps,
    /// Those of the marks where it goes on after a panic that it has recovered from, ascending.
    pub(super) recovered: Vec<u64>,
    /// Is it a function of a Go program? Then it jumps to its entry only when its stack has been grown, with
    /// nothing done before.
    pub(super) is_go: bool,
    /// Where the function is left, ascending.
    pub leaves: Vec<Leave>,
    /// Is the address of some instruction inside the function taken, by an instruction or in data?
    pub has_labels: bool,
    /// Direct jumps of the function to its own entry: loops, not calls.
    pub reentries: Vec<Svma>,
    /// Bytes that may be data, although they are instructions just as well: known by a label only.
    /// Whatever stands here is left alone.
    pub(super) doubtful: HashSet<u64>,
    /// Those of the instructions that some path reaches.
    pub(super) reached: HashSet<u64>,
    /// Is there an indirect jump of which it is not known where it lands?
    pub(super) unexplained: bool,
    /// Set where only an exit instruction itself and its padding may be overwritten.
    pub doubt: Option<Doubt>,
}

impl Flow {
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
    pub fn may_be_moved(&self, insn: &Insn) -> bool {
        let aligns = insn.is_no_op() && self.doubtful.is_empty();
        self.is_certain(insn.at()) || aligns
    }

    /// Does `at` belong to the function?
    pub fn contains(&self, at: u64) -> bool {
        self.ranges.iter().any(|r| r.contains(&Svma(at)))
    }

    /// Adds the places in the function that `body`, the code around it, may reach other than by a
    /// direct branch.
    pub(crate) fn add_arrivals_of(&mut self, body: &Self) {
        let arrivals = body.marks.iter().copied();
        let arrivals: Vec<u64> = arrivals
            .filter(|&at| self.contains(at) && !self.is_entry(at))
            .collect();
        self.marks.extend(arrivals);
        self.marks.sort_unstable();
        self.marks.dedup();
        if body.unexplained && self.doubt.is_none() {
            self.doubt = Some(Doubt::IndirectJump);
        }
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

    /// Does an instruction jump through one of the function's own tables for sure?
    pub fn is_switch(&self, insn: &Insn) -> bool {
        let is_other = self.jumps.is_by_pointer(insn.at()) || self.jumps.is_away(insn.at());
        insn.is_indirect_jump() && !self.unexplained && !is_other
    }

    /// The index of the instruction that starts at `at`.
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
