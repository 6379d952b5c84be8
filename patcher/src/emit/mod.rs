//! Patches and trampolines: a [`Site`] at its addresses in a process.
//!
//! ```text
//! window:      jmp trampoline          trampoline: push rax            the hook, before each
//!              (int3 up to its end)                mov  eax, id        probe point
//! resume:      ...                                 call [rip + cell]
//!                                                  pop  rax
//!                                                  displaced instructions
//!                                                  jmp  resume
//! ```
//!
//! The stub that the cell names preserves every register and the flags, and nothing else in a hook
//! touches the flags. A punned jump leads to a stepping stone first, 14 bytes at one of the few
//! addresses that it can name:
//!
//! ```text
//! window:      jmp stone ────► stone:  jmp [rip + 0] ────► trampoline
//! ```
//!
//! At an entry, a return and a tail jump nothing lives below the stack pointer, so the hook may push.
//! At any other instruction the red zone does (psABI 3.2.2), so there the hook keeps clear of it:
//!
//! ```text
//! lea rsp, [rsp - 128]; push rax; mov eax, number; call [rip + cell]; pop rax; lea rsp, [rsp + 128]
//! ```

mod buffer;
mod terms;
mod trampoline;

use crate::addr::{Avma, Bias};
use crate::plan::{Site, Tactic};

use buffer::rel32;

pub use terms::{EmitError, Hooks, PcPair};

/// Bytes to overwrite in the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch {
    /// Where.
    pub at: Avma,
    /// What stands there before.
    pub old: Vec<u8>,
    /// What stands there afterwards; as long as `old`.
    pub new: Vec<u8>,
}

/// Where the code of a site goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The trampoline, within 2 GiB of the site.
    pub trampoline: Avma,
    /// The stepping stone of a site with [`Tactic::Pun`], among the targets of its
    /// [`Pun`](crate::plan::Pun).
    pub stone: Option<Avma>,
}

impl From<Avma> for Place {
    fn from(trampoline: Avma) -> Self {
        Self {
            trampoline,
            stone: None,
        }
    }
}

/// `jmp [rip + 0]` and the address after it.
pub const STONE: u64 = 14;

/// What a site needs in a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Emitted {
    /// To be written while all threads are stopped, after the trampoline is in place.
    pub patches: Vec<Patch>,
    /// The trampoline.
    pub code: Vec<u8>,
    /// The stepping stone, of [`STONE`] bytes; empty where there is none.
    pub stone: Vec<u8>,
    /// Equal program counters. On the way into the trampoline the first pair with the address
    /// counts. On the way out each address stands in one pair at most. A thread elsewhere in the
    /// trampoline is in a hook or between the parts of one original instruction. It has to run on
    /// first.
    pub pcs: Vec<PcPair>,
    /// Where hooks begin: (the probe point's instruction, the hook). Only for leaving the
    /// trampoline: a thread at the hook is about to execute that instruction.
    pub hook_starts: Vec<PcPair>,
}

impl Site {
    /// The trampoline is never longer than this.
    pub fn max_len(&self) -> usize {
        trampoline::max_len(self)
    }

    /// The site for a module loaded with `bias`, its code at `place`.
    pub fn emit(
        &self,
        bias: Bias,
        place: impl Into<Place>,
        hooks: &Hooks,
    ) -> Result<Emitted, EmitError> {
        let place = place.into();
        let mut built = trampoline::build(self, bias, place.trampoline, hooks)?;
        let mut stone = Vec::new();
        if let Some(at) = place.stone.filter(|_| self.tactic == Tactic::Pun) {
            stone.extend([0xff, 0x25, 0, 0, 0, 0]); // jmp [rip + 0]
            stone.extend(place.trampoline.0.to_le_bytes());
            built.hook_starts.push(PcPair {
                original: bias.to_avma(self.window.start),
                trampoline: at,
            });
        }
        // The long jump goes with the patch, so a thread that has taken the short one goes back.
        let landing = self.landing.as_ref().map(|range| PcPair {
            original: bias.to_avma(self.window.start),
            trampoline: bias.to_avma(range.start),
        });
        built.hook_starts.extend(landing);
        Ok(Emitted {
            patches: self.patches(bias, place)?,
            code: built.code,
            stone,
            pcs: built.pcs,
            hook_starts: built.hook_starts,
        })
    }

    fn patches(&self, bias: Bias, place: Place) -> Result<Vec<Patch>, EmitError> {
        let trampoline = place.trampoline;
        let at = bias.to_avma(self.window.start);
        let [window, landing] = &self.old;
        let mut patches = Vec::new();
        match (self.tactic, &self.landing) {
            (Tactic::Retarget, _) => {
                // The displacement is the last thing in the instruction.
                let opcode = window.len() - 4;
                let field = rel32(at.plus(window.len() as u64), trampoline)?;
                patches.push(Patch {
                    at: at.plus(opcode as u64),
                    old: window[opcode..].to_vec(),
                    new: field.to_vec(),
                });
            }
            (Tactic::Trap, _) => patches.push(Patch {
                at,
                old: window.clone(),
                new: vec![0xcc],
            }),
            (Tactic::Pun, _) => {
                let refuse = EmitError::NotSpelled { at };
                let stone = place.stone.ok_or(refuse)?;
                let pun = self.pun.as_ref().ok_or(refuse)?;
                let field = rel32(at.plus(5), stone)?;
                if !field.ends_with(&pun.bytes) {
                    return Err(refuse);
                }
                let mut new = vec![0xe9];
                new.extend(&field[..field.len() - pun.bytes.len()]);
                patches.push(Patch {
                    at,
                    old: window.clone(),
                    new,
                });
            }
            (_, Some(range)) => {
                let stop = bias.to_avma(range.start);
                let field = rel32(stop.plus(5), trampoline)?;
                let mut new = vec![0xe9];
                new.extend(field);
                patches.push(Patch {
                    at: stop,
                    old: landing.clone(),
                    new,
                });
                let short = stop.0.wrapping_sub(at.plus(2).0) as i64;
                let short = i8::try_from(short).map_err(|_| EmitError::OutOfReach {
                    from: at.plus(2),
                    to: stop,
                })?;
                patches.extend(self.filled(at, &[0xeb, short as u8]));
            }
            (_, None) => {
                let field = rel32(at.plus(5), trampoline)?;
                let mut new = vec![0xe9];
                new.extend(field);
                patches.extend(self.filled(at, &new));
            }
        }
        Ok(patches)
    }

    /// `jump`, and breakpoints up to the end of the window, where nothing ever arrives. What other
    /// sites land in is left to them.
    fn filled(&self, at: Avma, jump: &[u8]) -> Vec<Patch> {
        let [old, _] = &self.old;
        let mut new = jump.to_vec();
        new.resize(old.len(), 0xcc);
        let mut patches: Vec<Patch> = Vec::new();
        for offset in 0..old.len() {
            let here = self.window.start.plus(offset as u64);
            if self.hosted.iter().any(|range| range.contains(&here)) {
                continue;
            }
            let to = at.plus(offset as u64);
            match patches.last_mut() {
                Some(patch) if patch.at.plus(patch.old.len() as u64) == to => {
                    patch.old.push(old[offset]);
                    patch.new.push(new[offset]);
                }
                _ => patches.push(Patch {
                    at: to,
                    old: vec![old[offset]],
                    new: vec![new[offset]],
                }),
            }
        }
        patches
    }
}
