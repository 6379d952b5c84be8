//! The first copy of a region whose paths are followed: versions of its code, which differ in what
//! is known of the register of the bank.
//!
//! The register has the address of the bank plus 8 times a sum. Steps of a path are put off: what
//! they add becomes part of the number of the counter at the end of the path. So code for a step is
//! needed only where ways with different sums meet, and on the way out. A path that begins where
//! the sum in the register is a constant needs no code either. Control enters the copy with an
//! unknown sum, so a loop is copied once for that, and once more for the paths that begin in it.
//! Versions are made as control reaches them ("Simple and Effective Type Check Removal through Lazy
//! Basic Block Versioning", Chevalier-Boisvert and Feeley, ECOOP 2015).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::addr::Svma;
use crate::inside::{Action, PathStep, Region, Tally, Transfer};

/// What is known of the sum of the path at a place in the copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Sum {
    /// The sum in the register. `None` if it is not known.
    register: Option<i64>,
    /// What the sum of the path has more than that in the register.
    more: i64,
}

impl Sum {
    /// The sum on the way in: the register has all of it, and it is not known.
    const ENTERED: Self = Self {
        register: None,
        more: 0,
    };

    /// The sum at the entry of a function. The register has the address of the bank.
    const BEFORE: Self = Self {
        register: Some(0),
        more: 0,
    };
}

/// The number of a label of the versions. Those of the versions that are entered from outside are
/// the indexes of their instructions.
pub(super) type Label = usize;

/// A piece of a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// The label is here.
    Place(Label),
    /// A path or an activation begins or ends. `more` is to be added to the number of the counter.
    /// A thread before the count is about to go on at `next`.
    Count {
        step: PathStep,
        more: i64,
        next: Svma,
    },
    /// The register gets the address of the bank.
    Reload { next: Svma },
    /// The sum in the register grows by `by`.
    Advance { by: i64, next: Svma },
    /// The instruction with this index, which is no jump.
    Insn(usize),
    /// The conditional jump with this index, to the label.
    Branch(usize, Label),
    /// The jump with this index, by a table. Targets outside of the region have no label. Before
    /// them, `more` is added to the sum in the register.
    Dispatch {
        index: usize,
        to: Vec<Option<Label>>,
        more: i64,
    },
    /// A jump to the label, at the copy of the instruction at `target`.
    Jump { to: Label, target: Svma },
    /// The way out, to an address outside of the region.
    Leave(Svma),
}

/// An upper bound of how often an instruction of `region` is in its versions: once for an unknown
/// sum, and for some known ones. Small regions may have many, for example a loop around a `switch`
/// with one sum for each case.
pub(super) fn most_copies(region: &Region) -> usize {
    /// The number of instructions in the versions of a small region.
    const ENOUGH: usize = 512;
    (ENOUGH / region.insns.len().max(1)).clamp(4, 17)
}

/// The pieces of the copy, in their order. `entered` are the indexes of the instructions at which
/// control enters it.
pub(super) fn versions(region: &Region, entered: &BTreeSet<usize>) -> Vec<Piece> {
    let mut versions = Versions {
        region,
        begin: begin(region),
        leaders: leaders(region, entered),
        labels: BTreeMap::new(),
        next: region.insns.len(),
        waiting: VecDeque::new(),
    };
    for &index in entered {
        let is_begin = versions.begin == Some(index);
        let sum = if is_begin { Sum::BEFORE } else { Sum::ENTERED };
        versions.label(index, sum);
    }
    let mut chains = Vec::new();
    while let Some(start) = versions.waiting.pop_front() {
        chains.push(versions.chain(start));
    }
    ordered(chains)
}

/// The instructions that control reaches by a jump or from outside.
fn leaders(region: &Region, entered: &BTreeSet<usize>) -> BTreeSet<usize> {
    let targets = region.insns.iter().flat_map(|insn| insn.targets());
    let targets = targets.filter_map(|target| region.index_of(target));
    targets.chain(entered.iter().copied()).collect()
}

/// The beginning of a chain of pieces.
#[derive(Clone, Copy)]
enum Start {
    /// A version of the instruction with this index.
    Version(usize, Sum, Label),
    /// Control goes on at this address, after the conditional jump with this index was taken if
    /// there is one.
    At(Option<usize>, Svma, Sum, Label),
}

/// The index of the instruction at the entry of a function that is copied as a whole. Control does
/// not come back to it.
fn begin(region: &Region) -> Option<usize> {
    let entry = region.headers.iter().find(|header| header.is_entry)?;
    region.index_of(entry.at)
}

struct Versions<'r> {
    region: &'r Region,
    /// The index of the instruction at the entry of a function.
    begin: Option<usize>,
    leaders: BTreeSet<usize>,
    /// The labels of all versions, by the index of the instruction.
    labels: BTreeMap<usize, BTreeMap<Sum, Label>>,
    /// The next label without a meaning.
    next: Label,
    waiting: VecDeque<Start>,
}

impl Versions<'_> {
    /// The label of this version, which is made if it is missing. `None` if there are too many.
    fn label(&mut self, index: usize, sum: Sum) -> Option<Label> {
        let own = self.labels.entry(index).or_default();
        if let Some(&known) = own.get(&sum) {
            return Some(known);
        }
        let others = own.keys().filter(|other| **other != Sum::ENTERED).count();
        let label = if sum == Sum::ENTERED || self.begin == Some(index) {
            index
        } else if others + 1 < most_copies(self.region) {
            self.next += 1;
            self.next - 1
        } else {
            return None;
        };
        own.insert(sum, label);
        self.waiting.push_back(Start::Version(index, sum, label));
        Some(label)
    }

    /// The pieces from `start` up to where control does not go on to the next piece.
    fn chain(&mut self, start: Start) -> Vec<Piece> {
        let region = self.region;
        let mut pieces = Vec::new();
        let (mut index, mut sum) = match start {
            Start::Version(index, sum, label) => {
                pieces.push(Piece::Place(label));
                (index, sum)
            }
            Start::At(jump, target, mut sum, label) => {
                pieces.push(Piece::Place(label));
                if let Some(jump) = jump {
                    self.steps(&mut pieces, (jump, Transfer::Taken), target, &mut sum);
                }
                self.go_on(&mut pieces, target, sum);
                return pieces;
            }
        };
        loop {
            let insn = &region.insns[index];
            let displaced = &insn.displaced;
            let (at, end) = (displaced.at, displaced.end());
            self.steps(&mut pieces, (index, Transfer::Reached), at, &mut sum);
            if insn.is_exit {
                pieces.push(Piece::Leave(at));
                return pieces;
            }
            if let Some(dispatch) = &insn.dispatch {
                let is_inside = |&target: &Svma| region.index_of(target).is_some();
                let targets = dispatch.targets().iter();
                let to = targets.map(|target| is_inside(target).then(|| self.at(*target, sum)));
                pieces.push(Piece::Dispatch {
                    index,
                    to: to.collect(),
                    more: sum.more,
                });
                return pieces;
            }
            match displaced.jump_target() {
                None => pieces.push(Piece::Insn(index)),
                Some(target) if !displaced.is_conditional() => {
                    self.go_on(&mut pieces, target, sum);
                    return pieces;
                }
                Some(target) => {
                    let label = self.taken(index, target, sum);
                    pieces.push(Piece::Branch(index, label));
                }
            }
            self.steps(&mut pieces, (index, Transfer::NotTaken), end, &mut sum);
            let next = region.index_of(end);
            let Some(next) = next.filter(|_| displaced.falls_through()) else {
                if displaced.falls_through() {
                    self.go_on(&mut pieces, end, sum);
                }
                return pieces;
            };
            if self.leaders.contains(&next) {
                let before = self.waiting.len();
                let Some(label) = self.label(next, sum) else {
                    self.go_on(&mut pieces, end, sum);
                    return pieces;
                };
                if self.waiting.len() == before {
                    pieces.push(Piece::Jump {
                        to: label,
                        target: end,
                    });
                    return pieces;
                }
                // The version is new, and follows here.
                self.waiting.pop_back();
                pieces.push(Piece::Place(label));
            }
            index = next;
        }
    }

    /// Where control goes on at `target`: a version of it, or pieces of its own.
    fn at(&mut self, target: Svma, sum: Sum) -> Label {
        let inside = self.region.index_of(target);
        if let Some(label) = inside.and_then(|index| self.label(index, sum)) {
            return label;
        }
        self.way(None, target, sum)
    }

    /// Where a conditional jump leads if it is taken: to a version of its target, or to pieces of
    /// its own.
    fn taken(&mut self, index: usize, target: Svma, sum: Sum) -> Label {
        let at = self.region.insns[index].displaced.at;
        if self.region.tallies_at(at, Transfer::Taken).next().is_none() {
            return self.at(target, sum);
        }
        self.way(Some(index), target, sum)
    }

    /// The label of pieces that go on at `target`, after the jump with the index `jump` was taken.
    fn way(&mut self, jump: Option<usize>, target: Svma, sum: Sum) -> Label {
        self.next += 1;
        let label = self.next - 1;
        self.waiting.push_back(Start::At(jump, target, sum, label));
        label
    }

    /// Adds the steps of a path at this transfer. Afterwards, control goes on at `next`.
    fn steps(
        &self,
        pieces: &mut Vec<Piece>,
        (index, transfer): (usize, Transfer),
        next: Svma,
        sum: &mut Sum,
    ) {
        let at = self.region.insns[index].displaced.at;
        for tally in self.region.tallies_at(at, transfer) {
            let Tally::Path(step) = tally else { continue };
            match step.action {
                Action::Add(by) => sum.more = sum.more.wrapping_add(by as i64),
                Action::Restart { start, .. } => {
                    let more = sum.more;
                    pieces.push(Piece::Count { step, more, next });
                    let register = sum.register.unwrap_or_else(|| {
                        pieces.push(Piece::Reload { next });
                        0
                    });
                    *sum = Sum {
                        register: Some(register),
                        more: (start as i64).wrapping_sub(register),
                    };
                }
                Action::Start(start) => {
                    pieces.push(Piece::Count {
                        step,
                        more: 0,
                        next,
                    });
                    sum.more = start as i64;
                }
                Action::End(_) => {
                    let more = sum.more;
                    pieces.push(Piece::Count { step, more, next });
                }
            }
        }
    }

    /// Adds the way to `target`, inside or outside of the region.
    fn go_on(&mut self, pieces: &mut Vec<Piece>, target: Svma, sum: Sum) {
        let index = self.region.index_of(target);
        if let Some(to) = index.and_then(|index| self.label(index, sum)) {
            pieces.push(Piece::Jump { to, target });
            return;
        }
        // Where control leaves a function, no path goes on.
        let goes_on = index.is_some() || !self.region.bank.is_of_function();
        if sum.more != 0 && goes_on {
            pieces.push(Piece::Advance {
                by: sum.more,
                next: target,
            });
        }
        let to = index.and_then(|index| self.label(index, Sum::ENTERED));
        pieces.push(match to {
            Some(to) => Piece::Jump { to, target },
            None => Piece::Leave(target),
        });
    }
}

/// The pieces of all chains. A chain that ends with a jump to the beginning of another one precedes
/// it, if no other chain does, and does not jump. So a loop needs no more jumps than before.
fn ordered(chains: Vec<Vec<Piece>>) -> Vec<Piece> {
    let first = |chain: &[Piece]| match chain.first() {
        Some(Piece::Place(label)) => Some(*label),
        _ => None,
    };
    let starts = chains.iter().map(|chain| first(chain)).zip(0..);
    let starts: BTreeMap<Label, usize> = starts.filter_map(|(l, n)| Some((l?, n))).collect();
    // For each chain, the one that follows it, and whether one precedes it.
    let mut after: Vec<Option<usize>> = vec![None; chains.len()];
    let mut is_preceded = vec![false; chains.len()];
    for (number, chain) in chains.iter().enumerate() {
        let Some(Piece::Jump { to, .. }) = chain.last() else {
            continue;
        };
        let next = starts.get(to).copied().filter(|&next| !is_preceded[next]);
        let Some(next) = next else { continue };
        // Chains in a circle have no beginning.
        let mut last = next;
        while let Some(further) = after[last] {
            last = further;
        }
        if last != number {
            after[number] = Some(next);
            is_preceded[next] = true;
        }
    }
    let mut pieces = Vec::new();
    for (number, _) in chains.iter().enumerate().filter(|(n, _)| !is_preceded[*n]) {
        let mut at = Some(number);
        while let Some(number) = at {
            let chain = &chains[number];
            at = after[number];
            let jumps = usize::from(at.is_some());
            pieces.extend_from_slice(&chain[..chain.len() - jumps]);
        }
    }
    pieces
}
