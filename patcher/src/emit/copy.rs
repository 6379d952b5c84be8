//! Copies of regions in a trampoline.
//!
//! Each region has two copies. The first one keeps the thread's bank in a register, and each count
//! is one increment. The second one is for threads without a bank of their own, and for activations
//! whose path is not known; its counts are those of hooks. If paths are followed, jumps to the
//! header in the second copy try the way into the first one again, because the path may be known
//! by then.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::addr::{Avma, Svma};
use crate::inside::{Action, Moved, Region, Tally, Transfer};
use crate::isa::{Code, Dispatch, DispatchLabels, Displaced, Goal, PathEntry, PathRow};

use super::terms::{BankedPc, CountCells, EmitError, Labels, PcPair};
use super::trampoline::Builder;
use super::versions::{Piece, versions};

/// The copy that is being emitted.
#[derive(Clone, Copy)]
enum Mode {
    /// The thread owns a bank, which is in a register.
    Banked,
    /// The counts call this stub.
    Shared(CountCells),
}

/// A conditional jump that is counted if it is taken, or that leaves the region.
struct Taken {
    label: usize,
    tallies: Vec<Tally>,
    target: Svma,
}

/// The labels of the copies of instructions, in the order of the instructions.
#[derive(Clone, Copy)]
struct Ways<'a> {
    own: &'a [usize],
    /// Where jumps lead.
    jumps: &'a [usize],
}

impl Builder<'_> {
    /// Emits the way from the header at `header` into the copies of the region of this number.
    /// Control does not continue after it.
    pub(super) fn enter(
        &mut self,
        number: u32,
        header: Svma,
        cells: CountCells,
    ) -> Result<(), EmitError> {
        let regions = self.site.regions.iter();
        let mut regions = regions.filter(|(of, _)| *of == number);
        let missing = EmitError::NoPointStub {
            at: self.bias.to_avma(header),
        };
        let (_, region) = regions.next().ok_or(missing)?;
        let region = Arc::clone(region);
        let index = region.index_of(header).ok_or(missing)?;
        let mut labels = || region.insns.iter().map(|_| self.out.label()).collect();
        let labels = self.copied.entry(number).or_insert_with(|| Labels {
            banked: labels(),
            shared: labels(),
        });
        let (banked, shared) = (labels.banked[index], labels.shared[index]);
        let of = region.headers.iter().find(|of| of.at == header);
        let of = of.ok_or(missing)?;
        let free = (of.free.registers, of.free.flags);
        let base = self.site.counters_from;
        let path: Option<PathEntry> = of.entry(base, cells.slots);
        let bank = (region.bank, region.height(header));
        if let Some(table) = cells.table {
            self.out.enter(bank, free, (table, path), banked)?;
            // The stub makes the thread the owner of a bank that has none.
            self.out.hook(cells.claim, cells.stub, true)?;
            let again = self.out.label();
            self.out.place(again);
            self.again.entry((number, index)).or_insert(again);
            self.out.enter(bank, free, (table, path), banked)?;
        }
        self.out.jump(Goal::Label(shared));
        Ok(())
    }

    /// Emits the copies of all regions that were entered.
    pub(super) fn copies(&mut self) -> Result<(), EmitError> {
        for (number, labels) in std::mem::take(&mut self.copied) {
            let regions = self.site.regions.iter();
            let regions = regions.filter(|(of, _)| *of == number);
            let regions: Vec<Arc<Region>> = regions.map(|(_, r)| Arc::clone(r)).collect();
            for region in regions {
                let Some(cells) = self.hooks.counts else {
                    continue;
                };
                if cells.table.is_some() && region.follows() {
                    self.versions(number, &region, &labels.banked)?;
                } else if cells.table.is_some() {
                    let (own, jumps) = (&labels.banked, &labels.banked);
                    self.region(&region, Mode::Banked, Ways { own, jumps })?;
                }
                let mut jumps = labels.shared.clone();
                for (index, label) in jumps.iter_mut().enumerate() {
                    let again = self.again.get(&(number, index));
                    *label = *again.filter(|_| region.follows()).unwrap_or(label);
                }
                let ways = Ways {
                    own: &labels.shared,
                    jumps: &jumps,
                };
                self.region(&region, Mode::Shared(cells), ways)?;
            }
        }
        Ok(())
    }

    /// Emits the first copy of a region whose paths are followed. `labels` are those of the
    /// versions that are entered.
    fn versions(
        &mut self,
        number: u32,
        region: &Region,
        labels: &[usize],
    ) -> Result<(), EmitError> {
        let mode = Mode::Banked;
        let entered = self.again.keys().filter(|(of, _)| *of == number);
        let entered = entered.map(|&(_, index)| index).collect();
        let mut others: BTreeMap<usize, usize> = BTreeMap::new();
        self.align(region);
        for piece in versions(region, &entered) {
            let mut label = |out: &mut Code, number: usize| match labels.get(number) {
                Some(&label) => label,
                None => *others.entry(number).or_insert_with(|| out.label()),
            };
            match piece {
                Piece::Place(number) => {
                    let label = label(&mut self.out, number);
                    self.out.place(label);
                }
                Piece::Count { step, more, next } => {
                    self.pair_in(region, mode, next);
                    let first = self.site.counters_from + step.first;
                    let counter = match step.action {
                        Action::Restart { end, .. } | Action::End(end) => first
                            .wrapping_add(PathRow::BEFORE)
                            .wrapping_add(end as u32)
                            .wrapping_add(more as u32),
                        Action::Start(_) => first + PathRow::BEGUN,
                        Action::Add(_) => continue,
                    };
                    let bank = (region.bank, region.height(next));
                    let inner = self.out.count_in(bank, counter, step.free.flags);
                    self.walk_in(region, inner, next);
                }
                Piece::Reload { next } => {
                    self.pair_in(region, mode, next);
                    self.out.reload(region.bank, region.height(next));
                }
                Piece::Advance { by, next } => {
                    self.pair_in(region, mode, next);
                    self.out.advance(region.bank, by);
                }
                Piece::Insn(index) => {
                    let insn = &region.insns[index];
                    self.pair_in(region, mode, insn.displaced.at);
                    self.plain(region, mode, insn)?;
                }
                Piece::Branch(index, to) => {
                    let displaced = &region.insns[index].displaced;
                    self.pair_in(region, mode, displaced.at);
                    let goal = Goal::Label(label(&mut self.out, to));
                    self.out.displaced(displaced, self.bias, Some(goal))?;
                }
                Piece::Dispatch { index, to, more } => {
                    let insn = &region.insns[index];
                    let Some(dispatch) = &insn.dispatch else {
                        continue;
                    };
                    self.pair_in(region, mode, insn.displaced.at);
                    let to = to.into_iter();
                    let labels = to.map(|to| Some(label(&mut self.out, to?))).collect();
                    self.dispatch(region, mode, (dispatch, labels), more)?;
                }
                Piece::Jump { to, target } => {
                    self.pair_in(region, mode, target);
                    let goal = Goal::Label(label(&mut self.out, to));
                    self.out.jump(goal);
                }
                Piece::Leave(target) => self.leave(region, mode, target),
            }
        }
        Ok(())
    }

    /// Aligns the copy of a region as the original is.
    fn align(&mut self, region: &Region) {
        let first = region.insns.first().map(|insn| insn.displaced.at);
        let first = first.map_or(self.out.here(), |at| self.bias.to_avma(at));
        self.out.align_loop(first);
    }

    fn region(&mut self, region: &Region, mode: Mode, ways: Ways<'_>) -> Result<(), EmitError> {
        let taken = self.taken_sides(region);
        let mut waiting: Vec<&Taken> = taken.values().collect();
        let mut falls_in = false;
        self.align(region);
        for (index, insn) in region.insns.iter().enumerate() {
            let displaced = &insn.displaced;
            let is_elsewhere = ways.jumps[index] != ways.own[index];
            // The counts of the jumps to this instruction precede it if nothing else runs there.
            if falls_in && is_elsewhere {
                self.go_on(region, mode, displaced.at, ways)?;
            } else if !falls_in {
                let (mut here, others): (Vec<_>, Vec<_>) = waiting
                    .into_iter()
                    .partition(|side| side.target == displaced.at);
                waiting = others;
                let last = if is_elsewhere { None } else { here.pop() };
                for side in here {
                    self.taken_side(region, mode, side, ways, false)?;
                }
                if let Some(side) = last {
                    self.taken_side(region, mode, side, ways, true)?;
                }
            }
            self.out.place(ways.own[index]);
            for tally in region.tallies_at(displaced.at, Transfer::Reached) {
                self.count_in_copy(region, mode, tally, displaced.at)?;
            }
            self.pair_in(region, mode, displaced.at);
            self.moved(region, mode, index, &taken, ways)?;
            for tally in region.tallies_at(displaced.at, Transfer::NotTaken) {
                self.count_in_copy(region, mode, tally, displaced.end())?;
            }
            let next = displaced.end();
            let follows = region.insns.get(index + 1);
            falls_in = displaced.falls_through() && follows.is_some_and(|n| n.displaced.at == next);
            if displaced.falls_through() && !falls_in {
                self.go_on(region, mode, next, ways)?;
            }
        }
        for side in waiting {
            self.taken_side(region, mode, side, ways, false)?;
        }
        Ok(())
    }

    /// The sides of conditional jumps that are not a plain jump in the copy, by the index of the
    /// jump.
    fn taken_sides(&mut self, region: &Region) -> BTreeMap<usize, Taken> {
        let jumps = region.insns.iter().enumerate();
        let jumps = jumps.filter(|(_, insn)| insn.displaced.is_conditional());
        let sides = jumps.filter_map(|(index, insn)| {
            let target = insn.displaced.jump_target()?;
            let tallies = region.tallies_at(insn.displaced.at, Transfer::Taken);
            let tallies: Vec<Tally> = tallies.collect();
            let is_plain = tallies.is_empty() && region.index_of(target).is_some();
            (!is_plain).then_some((index, tallies, target))
        });
        let sides: Vec<_> = sides.collect();
        let with_label = sides.into_iter().map(|(index, tallies, target)| {
            let label = self.out.label();
            let side = Taken {
                label,
                tallies,
                target,
            };
            (index, side)
        });
        with_label.collect()
    }

    /// Emits the counts of a jump that is taken, and the way to its target, unless its copy
    /// `follows`.
    fn taken_side(
        &mut self,
        region: &Region,
        mode: Mode,
        side: &Taken,
        ways: Ways<'_>,
        follows: bool,
    ) -> Result<(), EmitError> {
        self.out.place(side.label);
        for &tally in &side.tallies {
            self.count_in_copy(region, mode, tally, side.target)?;
        }
        if follows {
            Ok(())
        } else {
            self.go_on(region, mode, side.target, ways)
        }
    }

    /// Emits one instruction. A direct jump leads to the copy of its target.
    fn moved(
        &mut self,
        region: &Region,
        mode: Mode,
        index: usize,
        taken: &BTreeMap<usize, Taken>,
        ways: Ways<'_>,
    ) -> Result<(), EmitError> {
        let insn = &region.insns[index];
        let displaced: &Displaced = &insn.displaced;
        if insn.is_exit {
            self.leave(region, mode, displaced.at);
            return Ok(());
        }
        if let Some(dispatch) = &insn.dispatch {
            let inside = |&target: &Svma| Some(ways.jumps[region.index_of(target)?]);
            let labels = dispatch.targets().iter().map(inside).collect();
            return self.dispatch(region, mode, (dispatch, labels), 0);
        }
        let Some(target) = displaced.jump_target() else {
            return self.plain(region, mode, insn);
        };
        if !displaced.is_conditional() {
            return self.go_on(region, mode, target, ways);
        }
        let inside = || region.index_of(target).map(|index| ways.jumps[index]);
        let label = taken.get(&index).map(|side| side.label).or_else(inside);
        let label = label.ok_or(EmitError::NoPointStub {
            at: self.bias.to_avma(displaced.at),
        })?;
        Ok(self
            .out
            .displaced(displaced, self.bias, Some(Goal::Label(label)))?)
    }

    /// Emits a jump by a table to the label of each target. Targets without a label are outside of
    /// the region, before which `more` is added to the sum of the path.
    fn dispatch(
        &mut self,
        region: &Region,
        mode: Mode,
        (of, labels): (&Dispatch, Vec<Option<usize>>),
        more: i64,
    ) -> Result<(), EmitError> {
        let own = DispatchLabels::new(&mut self.out);
        self.out.dispatch(of, own);
        self.out.undo_dispatch(of, own);
        if more != 0 {
            self.out.advance(region.bank, more);
        }
        if matches!(mode, Mode::Banked) {
            let height = region.height(of.targets()[0]);
            self.out.leave(region.bank, height);
        }
        self.out.jump_to(of);
        let mut entries = Vec::new();
        for (&target, label) in of.targets().iter().zip(labels) {
            let Some(inside) = label.filter(|_| of.keeps) else {
                entries.push(label.unwrap_or(own.between));
                continue;
            };
            let restores = self.out.label();
            self.out.place(restores);
            self.out.restore_target(of, self.bias.to_avma(target))?;
            self.pair_in(region, mode, target);
            self.out.jump(Goal::Label(inside));
            entries.push(restores);
        }
        self.tables.push((of.clone(), own, entries));
        Ok(())
    }

    /// Emits the tables of all dispatches, which are data.
    pub(super) fn tables(&mut self) {
        for (of, own, labels) in std::mem::take(&mut self.tables) {
            self.out.dispatch_table(&of, own, &labels, self.bias);
        }
    }

    /// Emits an instruction that is no jump.
    fn plain(&mut self, region: &Region, mode: Mode, insn: &Moved) -> Result<(), EmitError> {
        let is_lower = matches!(mode, Mode::Banked) && region.bank.is_lowered();
        match insn.lowered.as_ref().filter(|_| is_lower) {
            Some(lowered) => self.out.lowered(lowered),
            None => self.out.displaced(&insn.displaced, self.bias, None)?,
        }
        Ok(())
    }

    /// Emits the way to `target`, inside or outside of the region.
    fn go_on(
        &mut self,
        region: &Region,
        mode: Mode,
        target: Svma,
        ways: Ways<'_>,
    ) -> Result<(), EmitError> {
        if let Some(index) = region.index_of(target) {
            self.pair_in(region, mode, target);
            self.out.jump(Goal::Label(ways.jumps[index]));
            return Ok(());
        }
        self.leave(region, mode, target);
        Ok(())
    }

    /// Emits the way out of the region, to `target`.
    fn leave(&mut self, region: &Region, mode: Mode, target: Svma) {
        if matches!(mode, Mode::Banked) {
            let left = self.out.leave(region.bank, region.height(target));
            let last = self.banked.last().map(|last| last.pcs.trampoline);
            let unpaired = left.plain.into_iter().filter(|&at| Some(at) != last);
            let pairs = unpaired.map(|at| self.banked_pc(region, target, at));
            let pairs: Vec<BankedPc> = pairs.collect();
            self.banked.extend(pairs);
            self.walk_in(region, left.others, target);
        }
        let goal = self.goal(target, None);
        let here = self.out.here();
        let is_paired = self.pcs.last().is_some_and(|last| last.trampoline == here);
        if goal == Goal::Outside(self.bias.to_avma(target)) && !is_paired {
            self.pair(target);
        }
        self.out.jump(goal);
    }

    /// Emits a count, or a step of a path in the second copy. A thread before it is about to go on
    /// at `next`.
    fn count_in_copy(
        &mut self,
        region: &Region,
        mode: Mode,
        tally: Tally,
        next: Svma,
    ) -> Result<(), EmitError> {
        self.pair_in(region, mode, next);
        let base = self.site.counters_from;
        match (mode, tally) {
            (Mode::Banked, Tally::Count(counter)) => {
                let number = base + counter.number;
                let bank = (region.bank, region.height(next));
                let inner = self.out.count_in(bank, number, counter.free.flags);
                self.walk_in(region, inner, next);
            }
            (Mode::Shared(cells), Tally::Count(counter)) => {
                let number = base + counter.number;
                self.out.hook(number, cells.stub, true)?;
            }
            (Mode::Shared(cells), Tally::Path(mut step)) => {
                step.first += base;
                self.path(step, cells)?;
            }
            // The first copy of a region whose paths are followed consists of versions.
            (Mode::Banked, Tally::Path(_)) => {}
        }
        Ok(())
    }

    /// Notes that a thread at one of these addresses is about to go on at `next`, and has other
    /// registers.
    fn walk_in(&mut self, region: &Region, at: Vec<Avma>, next: Svma) {
        let at = at.into_iter();
        let pcs = at.map(|at| self.banked_pc(region, next, at));
        let pcs: Vec<BankedPc> = pcs.collect();
        self.walked.extend(pcs);
    }

    /// Notes that a thread at the present address of the copy can continue at `original`.
    fn pair_in(&mut self, region: &Region, mode: Mode, original: Svma) {
        let at = self.out.here();
        if matches!(mode, Mode::Banked) && region.bank.is_spilled() {
            if self
                .banked
                .last()
                .is_none_or(|last| last.pcs.trampoline != at)
            {
                self.banked.push(self.banked_pc(region, original, at));
            }
        } else if self.pcs.last().is_none_or(|last| last.trampoline != at) {
            self.pair(original);
        }
    }

    fn banked_pc(&self, region: &Region, original: Svma, at: Avma) -> BankedPc {
        BankedPc {
            pcs: PcPair {
                original: self.bias.to_avma(original),
                trampoline: at,
            },
            register: region.bank.number(),
            saved_at: region.bank.saved_at(region.height(original)),
        }
    }
}
