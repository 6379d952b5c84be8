//! The trampoline of one site.

use crate::addr::{Avma, Bias, Svma};
use crate::isa::{Code, Displaced, Goal, HOOK, HOOK_AT_POINT, JUMP};
use crate::plan::{Effect, ProbePoint, Row, Site, Tactic};

use super::terms::{EmitError, Hooks, PcPair};

/// A jump to anywhere near.
const LONG: usize = JUMP as usize;

/// The code, and the addresses in it that mean the same as ones in the original.
pub struct Built {
    pub code: Vec<u8>,
    pub pcs: Vec<PcPair>,
    pub hook_starts: Vec<PcPair>,
}

/// The length of the longest trampoline `site` can have.
pub fn max_len(site: &Site) -> usize {
    let copies = |displaced: &[Displaced]| displaced.iter().map(Displaced::max_len).sum::<usize>();
    let hook = |point: &ProbePoint| match point.effect {
        Effect::Entry => HOOK,
        Effect::Point(_) => HOOK_AT_POINT,
        // After a conditional exit its hook and jump come extra.
        Effect::Exit | Effect::TailExit(_) => HOOK + LONG,
    };
    let row = |displaced: &[Displaced], points: &[ProbePoint]| {
        copies(displaced) + points.iter().map(hook).sum::<usize>() + LONG
    };
    let rows = site
        .rows
        .iter()
        .map(|r| row(&r.displaced, &r.points))
        .sum::<usize>();
    row(&site.displaced, &site.points) + rows
}

/// Builds the trampoline at `base`.
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
    };
    builder.rows = site.rows.iter().map(|_| builder.out.label()).collect();
    match site.tactic {
        Tactic::Retarget => builder.retarget()?,
        _ => builder.window()?,
    }
    builder.rows()?;
    builder.taken_exits()?;
    Ok(Built {
        code: builder.out.finish()?,
        pcs: builder.pcs,
        hook_starts: builder.hook_starts,
    })
}

/// Displaced instructions that stand in a row.
#[derive(Clone, Copy)]
struct Copied<'a> {
    /// Which row; 0 is the site's own window.
    number: usize,
    displaced: &'a [Displaced],
    points: &'a [ProbePoint],
    /// Where it goes on after them.
    resume: Svma,
}

struct Builder<'a> {
    site: &'a Site,
    bias: Bias,
    hooks: &'a Hooks,
    out: Code,
    pcs: Vec<PcPair>,
    hook_starts: Vec<PcPair>,
    /// Conditional exits, whose hook stands after everything else: its label, the instruction,
    /// and the target.
    taken: Vec<(usize, Effect, &'a Displaced, Svma)>,
    /// The labels of the site's further rows.
    rows: Vec<usize>,
}

impl<'a> Builder<'a> {
    fn window(&mut self) -> Result<(), EmitError> {
        let site = self.site;
        self.row(Copied {
            number: 0,
            displaced: &site.displaced,
            points: &site.points,
            resume: match (site.tactic, site.displaced.last()) {
                // The instruction is longer than the byte.
                (Tactic::Trap, Some(insn)) => insn.end(),
                _ => site.window.end,
            },
        })
    }

    /// The displaced instructions in a row, then back after them.
    fn row(&mut self, row: Copied<'a>) -> Result<(), EmitError> {
        for displaced in row.displaced {
            // Jumps to an exit or a point meet its hook; those to the entry are no calls.
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
        }
        if row.displaced.last().is_none_or(Displaced::falls_through) {
            // The function may end here and run on into the next one.
            for point in row.points.iter().filter(|p| p.at == row.resume) {
                self.hook(point.effect, row.resume)?;
            }
            self.pair(row.resume);
            let back = Goal::Outside(self.bias.to_avma(row.resume));
            self.out.jump(back);
        }
        Ok(())
    }

    /// Only the hook and the jump itself, which the patched one leads to once it is taken.
    fn retarget(&mut self) -> Result<(), EmitError> {
        let Some(jump) = self.site.displaced.first() else {
            return Ok(());
        };
        let Some(target) = jump.jump_target() else {
            return Ok(());
        };
        for point in &self.site.points {
            self.hook(point.effect, jump.at)?;
        }
        let goal = self.goal(target, None);
        if goal == Goal::Outside(self.bias.to_avma(target)) {
            self.pair(target);
        }
        self.out.jump(goal);
        Ok(())
    }

    fn pair(&mut self, original: Svma) {
        let pair = PcPair {
            original: self.bias.to_avma(original),
            trampoline: self.out.here(),
        };
        self.pcs.push(pair);
    }

    /// The hooks of `points` that run whenever control comes to `displaced`.
    fn hooks_before(
        &mut self,
        displaced: &Displaced,
        points: &[&ProbePoint],
    ) -> Result<(), EmitError> {
        let if_taken = |p: &ProbePoint| p.effect.is_exit() && displaced.is_conditional();
        for point in points.iter().filter(|p| !if_taken(p)) {
            self.hook(point.effect, displaced.at)?;
        }
        Ok(())
    }

    fn hook(&mut self, effect: Effect, original: Svma) -> Result<(), EmitError> {
        let original = self.bias.to_avma(original);
        let (cell, number) = match effect {
            Effect::Entry => (self.hooks.entry_cell, self.hooks.id),
            Effect::Exit => (self.hooks.exit_cell, self.hooks.id),
            Effect::TailExit(None) => (self.hooks.tail_cell, self.hooks.id),
            Effect::TailExit(Some(_)) => (self.hooks.lend_cell, self.hooks.id),
            Effect::Point(number) => {
                let missing = EmitError::NoPointStub { at: original };
                (self.hooks.point_cell.ok_or(missing)?, number)
            }
        };
        let red_zone = matches!(effect, Effect::Point(_));
        self.hook_starts.push(PcPair {
            original,
            trampoline: self.out.here(),
        });
        Ok(self.out.hook(number, cell, red_zone)?)
    }

    /// Where a jump to `target` goes that is displaced in `row`.
    fn goal(&self, target: Svma, row: Option<Copied<'_>>) -> Goal {
        let site = self.site;
        // The entry hook stands before the copy of the entry, not in it.
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

    /// Where a conditional jump goes if taken: to its hook, if it is an exit.
    fn taken_goal(&mut self, displaced: &'a Displaced, target: Svma, row: Copied<'_>) -> Goal {
        let exit = |p: &&ProbePoint| p.at == displaced.at && p.effect.is_exit();
        if let Some(exit) = row.points.iter().find(exit) {
            let label = self.out.label();
            self.taken.push((label, exit.effect, displaced, target));
            Goal::Label(label)
        } else {
            self.goal(target, Some(row))
        }
    }

    fn taken_exits(&mut self) -> Result<(), EmitError> {
        for (label, effect, jump, target) in std::mem::take(&mut self.taken) {
            self.out.place(label);
            self.hook(effect, jump.at)?;
            // What has counted already must not run again in its original place.
            if !jump.is_repeatable() {
                self.hook_starts.pop();
            }
            self.pair(target);
            let goal = Goal::Outside(self.bias.to_avma(target));
            self.out.jump(goal);
        }
        Ok(())
    }

    /// Copies of what the site's jumps lead to in the windows of other sites.
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
