//! The trampoline of one site.

use crate::addr::{Avma, Bias, Svma};
use crate::plan::{Effect, ProbePoint, Row, Site, Tactic};
use crate::relocate::{BACK_OVER_RED_ZONE, Displaced, Form, SKIP_RED_ZONE};

use super::buffer::{Buffer, Goal};
use super::terms::{EmitError, Hooks, PcPair};

/// `push rax; mov eax, imm32; call [rip + disp32]; pop rax`.
const HOOK: usize = 1 + 5 + 6 + 1;
/// What stands around it at a point: `lea rsp, [rsp - 128]` and `lea rsp, [rsp + 128]`.
const AROUND: usize = SKIP_RED_ZONE.len() + BACK_OVER_RED_ZONE.len();
/// `jmp rel32`.
const JUMP: usize = 5;

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
        Effect::Point(_) => HOOK + AROUND,
        // After a conditional exit its hook and jump come extra.
        Effect::Exit | Effect::TailExit(_) => HOOK + JUMP,
    };
    let row = |displaced: &[Displaced], points: &[ProbePoint]| {
        copies(displaced) + points.iter().map(hook).sum::<usize>() + JUMP
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
        out: Buffer::new(base),
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
    out: Buffer,
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
            self.out.jump(&[0xe9], back);
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
        self.out.jump(&[0xe9], goal);
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
        let if_taken = |p: &ProbePoint| p.effect.is_exit() && conditional(displaced);
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
        if red_zone {
            self.out.put(&SKIP_RED_ZONE);
        }
        self.out.put(&[0x50]); // push rax: the number is passed in it
        self.out.put(&[0xb8]); // mov eax, number
        self.out.put(&number.to_le_bytes());
        self.out.rip_relative(&[0xff, 0x15, 0, 0, 0, 0], 2, cell)?; // call [rip + cell]
        self.out.put(&[0x58]); // pop rax
        if red_zone {
            self.out.put(&BACK_OVER_RED_ZONE);
        }
        Ok(())
    }

    /// Where a jump to `target` goes that is displaced in `row`.
    fn goal(&self, target: Svma, row: Option<Copied<'_>>) -> Goal {
        let site = self.site;
        // The entry hook stands before the copy of the entry, not in it.
        let target = match site.entry.contains(&target) {
            true => Svma(site.entry.end.0 - 1),
            false => target,
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
        match &displaced.form {
            Form::Copy => self.out.put(&displaced.bytes),
            Form::RipRelative {
                offset,
                target,
                far,
            } => {
                let target = self.bias.to_avma(*target);
                let near = self.out.rip_relative(&displaced.bytes, *offset, target);
                if near.is_err() {
                    let at = self.bias.to_avma(displaced.at);
                    let far = far.as_ref().ok_or(EmitError::NoFarForm { at })?;
                    let mut bytes = Vec::new();
                    far.encode(target, &mut bytes);
                    self.out.put(&bytes);
                }
            }
            Form::Jump { target } => {
                let goal = self.goal(*target, Some(row));
                self.out.jump(&[0xe9], goal);
            }
            Form::Conditional { target, opcode } => {
                let goal = self.taken_goal(displaced, *target, row);
                self.out.jump(&[0x0f, *opcode], goal);
            }
            Form::Counted { target } => {
                let goal = self.taken_goal(displaced, *target, row);
                // Taken, it skips the short jump that skips the long one.
                self.out.put(&displaced.bytes[..displaced.bytes.len() - 1]);
                self.out.put(&[0x02]);
                self.out.put(&[0xeb, JUMP as u8]);
                self.out.jump(&[0xe9], goal);
            }
            Form::Call { target } => {
                self.push_return(displaced);
                let goal = Goal::Outside(self.bias.to_avma(*target));
                self.out.jump(&[0xe9], goal);
            }
            Form::CallThrough { jump, rip_relative } => {
                self.push_return(displaced);
                match rip_relative {
                    None => self.out.put(jump),
                    Some((offset, target)) => {
                        let target = self.bias.to_avma(*target);
                        self.out.rip_relative(jump, *offset, target)?;
                    }
                }
            }
        }
        Ok(())
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
            // `loop` has counted already, so it must not run again in its original place.
            if matches!(jump.form, Form::Counted { .. }) {
                self.hook_starts.pop();
            }
            self.pair(target);
            let goal = Goal::Outside(self.bias.to_avma(target));
            self.out.jump(&[0xe9], goal);
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

    /// Pushes the address after `call`, touching no register and no flag.
    fn push_return(&mut self, call: &Displaced) {
        let address = self.bias.to_avma(call.end()).0;
        let (low, high) = (address as u32, (address >> 32) as u32);
        self.out.put(&[0x68]); // push imm32, sign-extended
        self.out.put(&low.to_le_bytes());
        if i64::from(low as i32) as u64 != address {
            self.out.put(&[0xc7, 0x44, 0x24, 0x04]); // mov dword [rsp + 4], high
            self.out.put(&high.to_le_bytes());
        }
    }
}

fn conditional(displaced: &Displaced) -> bool {
    matches!(
        displaced.form,
        Form::Conditional { .. } | Form::Counted { .. }
    )
}
