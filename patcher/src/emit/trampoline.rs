//! The trampoline of one site.

use std::collections::BTreeMap;

use crate::addr::{Avma, Bias, Svma};
use crate::inside::{Counter, PathStep};
use crate::isa::{Code, Dispatch, DispatchLabels, Displaced, Goal, PathCells, PathRow};
use crate::plan::{Effect, ProbePoint, Row, Site, Tactic};

use super::terms::{BankedPc, CountCells, EmitError, Hooks, Labels, PcPair};

/// A trampoline's code, and pairs of its addresses with equivalent ones in the original.
pub struct Built {
    /// The trampoline's code.
    pub code: Vec<u8>,
    /// Equivalent program counters.
    pub pcs: Vec<PcPair>,
    /// The starts of hooks, each with the probe point's instruction.
    pub hook_starts: Vec<PcPair>,
    /// Equivalent program counters in copies that have spilled the register of the bank.
    pub banked: Vec<BankedPc>,
    /// As `banked`, but with other registers changed.
    pub walked: Vec<BankedPc>,
}

/// Builds the trampoline of `site` for the address `base`.
///
/// # Errors
/// The trampoline cannot work at `base`, or `hooks` has no stub for a point.
pub fn build(site: &Site, bias: Bias, base: Avma, hooks: &Hooks) -> Result<Built, EmitError> {
    let mut builder = Builder {
        site,
        bias,
        hooks,
        out: Code::new(base),
        pcs: Vec::new(),
        hook_starts: Vec::new(),
        taken: Vec::new(),
        rows: Vec::new(),
        uncounted: Vec::new(),
        path_rows: Vec::new(),
        tables: Vec::new(),
        copied: BTreeMap::new(),
        again: BTreeMap::new(),
        banked: Vec::new(),
        walked: Vec::new(),
    };
    builder.rows = site.rows.iter().map(|_| builder.out.label()).collect();
    match site.tactic {
        Tactic::Retarget => builder.retarget()?,
        _ => builder.window()?,
    }
    builder.rows()?;
    builder.taken_jumps()?;
    builder.copies()?;
    builder.uncounted()?;
    builder.out.slow_paths()?;
    builder.out.look_ups()?;
    builder.path_rows();
    builder.tables();
    Ok(Built {
        code: builder.out.finish()?,
        pcs: builder.pcs,
        hook_starts: builder.hook_starts,
        banked: builder.banked,
        walked: builder.walked,
    })
}

/// Consecutive displaced instructions.
#[derive(Clone, Copy)]
pub(super) struct Copied<'a> {
    /// The row's index; 0 is the site's own window.
    number: usize,
    displaced: &'a [Displaced],
    points: &'a [ProbePoint],
    /// The original address at which execution continues after the instructions.
    resume: Svma,
}

pub(super) struct Builder<'a> {
    pub(super) site: &'a Site,
    pub(super) bias: Bias,
    pub(super) hooks: &'a Hooks,
    pub(super) out: Code,
    pub(super) pcs: Vec<PcPair>,
    hook_starts: Vec<PcPair>,
    /// Conditional jumps with hooks if they are taken, which follow all other code: the label, the
    /// effects, the instruction, and where it leads.
    taken: Vec<(usize, Vec<Effect>, &'a Displaced, Svma, Goal)>,
    /// The labels of the site's other rows.
    rows: Vec<usize>,
    /// Counts of threads without a bank.
    uncounted: Vec<Uncounted>,
    /// The rows of the hooks of paths, with their labels. They are data, after all code.
    path_rows: Vec<(usize, PathRow)>,
    /// The tables of jumps in copies, with the labels of the targets. They are data, after all
    /// code.
    pub(super) tables: Vec<(Dispatch, DispatchLabels, Vec<usize>)>,
    /// The labels of the copies of each region that is entered, by the region's number.
    pub(super) copied: BTreeMap<u32, Labels>,
    /// The labels at which control may try again to enter the first copy, by the region's number
    /// and the index of the header.
    pub(super) again: BTreeMap<(u32, usize), usize>,
    /// Equivalent program counters in copies that have spilled the register of the bank.
    pub(super) banked: Vec<BankedPc>,
    /// As `banked`, but with other registers changed.
    pub(super) walked: Vec<BankedPc>,
}

/// A count by a thread that has no bank.
struct Uncounted {
    /// The number of the counter.
    number: u32,
    /// The cell of the stub.
    stub: Avma,
    /// True if the stack pointer is above the red zone.
    keeps_red_zone: bool,
    /// The label of the call.
    otherwise: usize,
    /// The label to continue at.
    after: usize,
}

impl<'a> Builder<'a> {
    fn window(&mut self) -> Result<(), EmitError> {
        let site = self.site;
        self.row(Copied {
            number: 0,
            displaced: &site.displaced,
            points: &site.points,
            resume: match (site.tactic, site.displaced.last()) {
                // The window is one byte, but the instruction is longer.
                (Tactic::Trap, Some(insn)) => insn.end(),
                _ => site.window.end,
            },
        })
    }

    /// Emits the displaced instructions of a row, then a jump back to the code after them.
    fn row(&mut self, row: Copied<'a>) -> Result<(), EmitError> {
        for displaced in row.displaced {
            // Jumps to an exit or a point run its hook. Jumps to the entry do not: they are not
            // calls.
            let (entries, others): (Vec<_>, Vec<_>) = row
                .points
                .iter()
                .filter(|p| p.at == displaced.at)
                .partition(|p| p.effect == Effect::Entry);
            self.hooks_before(displaced, &entries)?;
            self.out.begin_copy(row.number, displaced.at);
            self.hooks_before(displaced, &others)?;
            self.pair(displaced.at);
            self.copy(displaced, row)?;
            let after = |p: &&ProbePoint| p.at == displaced.at && p.effect.is_if_not_taken();
            for point in row.points.iter().filter(after) {
                self.hook(point.effect, displaced.end())?;
            }
        }
        if row.displaced.last().is_none_or(Displaced::falls_through) {
            // The function may end here and fall through into the next one.
            for point in row.points.iter().filter(|p| p.at == row.resume) {
                self.hook(point.effect, row.resume)?;
            }
            self.pair(row.resume);
            let back = Goal::Outside(self.bias.to_avma(row.resume));
            self.out.jump(back);
        }
        Ok(())
    }

    /// Emits only the hook and a jump to the original target: the patched jump arrives here when it
    /// is taken.
    fn retarget(&mut self) -> Result<(), EmitError> {
        let Some(jump) = self.site.displaced.first() else {
            return Ok(());
        };
        let Some(target) = jump.jump_target() else {
            return Ok(());
        };
        for (index, point) in self.site.points.iter().enumerate() {
            self.hook(point.effect, jump.at)?;
            // A jump whose first hook has run must not run again at its original address.
            if index > 0 {
                self.hook_starts.pop();
            }
        }
        let goal = self.goal(target, None);
        if goal == Goal::Outside(self.bias.to_avma(target)) {
            self.pair(target);
        }
        self.out.jump(goal);
        Ok(())
    }

    pub(super) fn pair(&mut self, original: Svma) {
        let pair = PcPair {
            original: self.bias.to_avma(original),
            trampoline: self.out.here(),
        };
        self.pcs.push(pair);
    }

    /// Emits the hooks of `points` that run each time before `displaced` executes.
    fn hooks_before(
        &mut self,
        displaced: &Displaced,
        points: &[&ProbePoint],
    ) -> Result<(), EmitError> {
        let if_taken = |p: &ProbePoint| p.effect.is_if_taken() && displaced.is_conditional();
        let is_before = |p: &&&ProbePoint| !if_taken(p) && !p.effect.is_if_not_taken();
        for point in points.iter().filter(is_before) {
            let Some(target) = point.effect.target() else {
                self.hook(point.effect, displaced.at)?;
                continue;
            };
            let otherwise = self.out.label();
            let target = self.bias.to_avma(target);
            let are_free = point.effect.has_free_flags();
            let jump = &displaced.bytes;
            if !self.out.unless_leads_to(jump, target, are_free, otherwise) {
                return Err(EmitError::NoPointStub {
                    at: self.bias.to_avma(displaced.at),
                });
            }
            self.hook(point.effect, displaced.at)?;
            self.out.place(otherwise);
        }
        Ok(())
    }

    fn hook(&mut self, effect: Effect, original: Svma) -> Result<(), EmitError> {
        let header = original;
        let original = self.bias.to_avma(original);
        self.hook_starts.push(PcPair {
            original,
            trampoline: self.out.here(),
        });
        let (cell, number) = match effect {
            Effect::Entry => (self.hooks.entry_cell, self.hooks.id),
            Effect::Exit => (self.hooks.exit_cell, self.hooks.id),
            Effect::TailExit(None) => (self.hooks.tail_cell, self.hooks.id),
            Effect::TailExit(Some(_)) => (self.hooks.lend_cell, self.hooks.id),
            Effect::Point(number) => {
                let missing = EmitError::NoPointStub { at: original };
                (self.hooks.point_cell.ok_or(missing)?, number)
            }
            Effect::Span(step) => {
                let missing = EmitError::NoPointStub { at: original };
                let [begin, end] = self.hooks.span_cells.ok_or(missing)?;
                (if step.begins { begin } else { end }, step.number)
            }
            Effect::Count(counter) => {
                let missing = EmitError::NoPointStub { at: original };
                return self.count(counter, self.hooks.counts.ok_or(missing)?);
            }
            Effect::Path(step) => {
                let missing = EmitError::NoPointStub { at: original };
                let cells = self.hooks.counts.ok_or(missing)?;
                return match step.timed {
                    None => self.path(step, cells),
                    Some(timed) => {
                        let timing = self.hooks.timed_path_cells.ok_or(missing)?;
                        self.timed_path(step, cells, (timed.number, timing))
                    }
                };
            }
            Effect::Enter(number) => {
                let missing = EmitError::NoPointStub { at: original };
                return self.enter(number, header, self.hooks.counts.ok_or(missing)?);
            }
        };
        let red_zone = effect.is_inside();
        Ok(self.out.hook(number, cell, red_zone)?)
    }

    /// Emits a hook that counts. If the thread has no bank, it calls the stub, out of line.
    fn count(&mut self, counter: Counter, cells: CountCells) -> Result<(), EmitError> {
        let Counter { number, free, .. } = counter;
        let Some(table) = cells.table else {
            return Ok(self.out.hook(number, cells.stub, true)?);
        };
        let [otherwise, after] = [self.out.label(), self.out.label()];
        let free = (free.registers, free.flags);
        let labels = (otherwise, after);
        let keeps_red_zone = self.out.count(number, free, table, labels)?;
        self.uncounted.push(Uncounted {
            number,
            stub: cells.stub,
            keeps_red_zone,
            otherwise,
            after,
        });
        Ok(())
    }

    /// Emits the hook of a path.
    pub(super) fn path(&mut self, step: PathStep, cells: CountCells) -> Result<(), EmitError> {
        let (label, row) = (self.out.label(), step.row());
        self.path_with_row(step, (label, row), cells)
    }

    /// Emits the hooks of a timed path. Its time excludes the hook that counts.
    fn timed_path(
        &mut self,
        step: PathStep,
        cells: CountCells,
        (number, [start, end]): (u32, [Avma; 2]),
    ) -> Result<(), EmitError> {
        let (label, row) = (self.out.label(), step.row());
        if matches!(row.kind, PathRow::ENDS | PathRow::RESTARTS) {
            // The stub needs the sum.
            self.out.timed_path_hook(label, number, end)?;
        }
        self.path_with_row(step, (label, row), cells)?;
        if matches!(row.kind, PathRow::BEGINS | PathRow::RESTARTS) {
            self.out.timed_path_hook(label, number, start)?;
        }
        Ok(())
    }

    /// Emits the hook of a path with this row, and the label of the row.
    fn path_with_row(
        &mut self,
        step: PathStep,
        (label, row): (usize, PathRow),
        cells: CountCells,
    ) -> Result<(), EmitError> {
        self.path_rows.push((label, row));
        let free = (step.free.registers, step.free.flags);
        let cells = PathCells {
            stub: cells.paths,
            tables: cells.table.map(|banks| [banks, cells.slots]),
        };
        Ok(self.out.path_hook((label, &row), free, cells)?)
    }

    fn path_rows(&mut self) {
        for (label, row) in std::mem::take(&mut self.path_rows) {
            self.out.path_row(label, &row);
        }
    }

    /// Emits the calls of the stub for counts in threads without a bank.
    fn uncounted(&mut self) -> Result<(), EmitError> {
        for of in std::mem::take(&mut self.uncounted) {
            self.out.place(of.otherwise);
            self.out.hook(of.number, of.stub, of.keeps_red_zone)?;
            self.out.jump(Goal::Label(of.after));
        }
        Ok(())
    }

    /// The new target for a jump to `target` that is displaced in `row`.
    pub(super) fn goal(&self, target: Svma, row: Option<Copied<'_>>) -> Goal {
        let site = self.site;
        // The entry hook precedes the copy of the entry, so a jump to that copy skips the hook.
        let target = if site.entry.contains(&target) {
            Svma(site.entry.end.0 - 1)
        } else {
            target
        };
        if let Some(row) = row
            && row.displaced.iter().any(|d| d.at == target)
        {
            return Goal::Copy(row.number, target);
        }
        match site.rows.iter().position(|r| r.displaced[0].at == target) {
            Some(index) => Goal::Label(self.rows[index]),
            None => Goal::Outside(self.bias.to_avma(target)),
        }
    }

    fn copy(&mut self, displaced: &'a Displaced, row: Copied<'_>) -> Result<(), EmitError> {
        let goal = displaced.jump_target().map(|target| {
            if displaced.is_conditional() {
                self.taken_goal(displaced, target, row)
            } else {
                self.goal(target, Some(row))
            }
        });
        Ok(self.out.displaced(displaced, self.bias, goal)?)
    }

    /// The new target of a conditional jump: the hooks that run if the jump is taken, if it has
    /// any.
    fn taken_goal(&mut self, displaced: &'a Displaced, target: Svma, row: Copied<'_>) -> Goal {
        let is_taken = |p: &&ProbePoint| p.at == displaced.at && p.effect.is_if_taken();
        let effects: Vec<Effect> = row
            .points
            .iter()
            .filter(is_taken)
            .map(|p| p.effect)
            .collect();
        let goal = self.goal(target, Some(row));
        if effects.is_empty() {
            return goal;
        }
        let label = self.out.label();
        self.taken.push((label, effects, displaced, target, goal));
        Goal::Label(label)
    }

    fn taken_jumps(&mut self) -> Result<(), EmitError> {
        for (label, effects, jump, target, goal) in std::mem::take(&mut self.taken) {
            self.out.place(label);
            for (index, &effect) in effects.iter().enumerate() {
                self.hook(effect, jump.at)?;
                // An instruction that has changed a counter, or whose first hook has run, must not
                // run again at its original address.
                if index > 0 || !jump.is_repeatable() {
                    self.hook_starts.pop();
                }
            }
            if goal == Goal::Outside(self.bias.to_avma(target)) {
                self.pair(target);
            }
            self.out.jump(goal);
        }
        Ok(())
    }

    /// Emits copies of code in other sites' windows that the site's jumps lead to.
    fn rows(&mut self) -> Result<(), EmitError> {
        for (
            index,
            Row {
                displaced,
                points,
                resume,
            },
        ) in self.site.rows.iter().enumerate()
        {
            self.out.place(self.rows[index]);
            self.row(Copied {
                number: index + 1,
                displaced,
                points,
                resume: *resume,
            })?;
        }
        Ok(())
    }
}
