//! Patches and trampolines: a [`Site`] at its addresses in a process.
//!
//! A jump at the window leads to the trampoline. The trampoline has a hook before each probe point,
//! the displaced instructions, and a jump back to the end of the window. The stub that a hook calls
//! preserves every register and the flags, and nothing else in a hook changes the flags. A punned
//! jump leads to a stepping stone first, at one of the few addresses that it can encode.
//!
//! At an entry, a return or a tail jump, nothing below the stack pointer is live, so the hook may
//! push. At any other instruction the red zone is live, so the hook skips it.

mod copy;
mod size;
mod terms;
mod trampoline;
mod versions;

use crate::addr::{Avma, Bias};
use crate::isa::{self, BREAKPOINT};
use crate::plan::{Site, Tactic};

pub use crate::isa::STONE;
pub use terms::{BankedPc, CountCells, EmitError, Hooks, PcPair};

/// Bytes to overwrite in the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch {
    /// The address of the first byte.
    pub at: Avma,
    /// The bytes expected there before patching.
    pub old: Vec<u8>,
    /// The bytes to write; as long as `old`.
    pub new: Vec<u8>,
}

/// Addresses for the code of a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodePlace {
    /// The trampoline, within 2 GiB of the site.
    pub trampoline: Avma,
    /// The address of the stepping stone of a site with [`Tactic::Pun`], one of the targets of its
    /// [`Pun`](crate::plan::Pun). `None` for other sites.
    pub stone: Option<Avma>,
}

impl From<Avma> for CodePlace {
    fn from(trampoline: Avma) -> Self {
        Self {
            trampoline,
            stone: None,
        }
    }
}

/// The patches and the code of a site in a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Emitted {
    /// Patches to write while all threads are stopped, after the trampoline is in place.
    pub patches: Vec<Patch>,
    /// The trampoline's code.
    pub code: Vec<u8>,
    /// The stepping stone, of [`STONE`] bytes; empty if the site has none.
    pub stone: Vec<u8>,
    /// Equivalent program counters.
    ///
    /// To move a thread into the trampoline, use the first pair with its original address. In the
    /// other direction, each trampoline address is in at most one pair. A thread at any other
    /// address of the trampoline is in a hook, or between the parts of one original instruction.
    /// Let it run on first.
    pub pcs: Vec<PcPair>,
    /// Addresses at which a thread is about to execute the original instruction of the pair: starts
    /// of hooks, the stepping stone, and the landing of a short jump. Use these pairs only to undo
    /// the patches.
    pub hook_starts: Vec<PcPair>,
    /// Equivalent program counters in copies that keep a bank in a register whose value is on the
    /// stack.
    pub banked: Vec<BankedPc>,
    /// As `banked`, inside of counts that save the flags. A thread cannot be moved, because other
    /// registers have changed too.
    pub walked: Vec<BankedPc>,
}

impl Site {
    /// An upper bound of the trampoline's length, in bytes.
    pub fn max_len(&self) -> usize {
        size::max_len(self)
    }

    /// An upper bound of the number of program counters in copies of regions, and beside them.
    /// Returns 0 if it has no copies.
    pub fn max_copied_pcs(&self) -> usize {
        size::max_copied_pcs(self)
    }

    /// Emits the site for a module loaded with `bias`, with its code at `place`.
    ///
    /// # Errors
    ///
    /// Fails if the trampoline cannot work at `place`, or if `hooks` has no stub for a point.
    pub fn emit(
        &self,
        bias: Bias,
        place: impl Into<CodePlace>,
        hooks: &Hooks,
    ) -> Result<Emitted, EmitError> {
        let place = place.into();
        let mut built = trampoline::build(self, bias, place.trampoline, hooks)?;
        let mut stone = Vec::new();
        if let Some(at) = place.stone.filter(|_| self.tactic == Tactic::Pun) {
            stone = isa::stone(place.trampoline);
            built.hook_starts.push(PcPair {
                original: bias.to_avma(self.window.start),
                trampoline: at,
            });
        }
        // Undoing the patch removes the long jump. A thread that has taken the short one must go
        // back.
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
            banked: built.banked,
            walked: built.walked,
        })
    }

    fn patches(&self, bias: Bias, place: CodePlace) -> Result<Vec<Patch>, EmitError> {
        let trampoline = place.trampoline;
        let at = bias.to_avma(self.window.start);
        let [window, landing] = &self.old;
        let mut patches = Vec::new();
        match (self.tactic, &self.landing) {
            (Tactic::Retarget, _) => {
                let (offset, new) = isa::retargeted(window, at, trampoline)?;
                patches.push(Patch {
                    at: at.plus(offset as u64),
                    old: window[offset..].to_vec(),
                    new,
                });
            }
            (Tactic::Trap, _) => patches.push(Patch {
                at,
                old: window.clone(),
                new: vec![BREAKPOINT],
            }),
            (Tactic::Pun, _) => {
                let refuse = EmitError::NotSpelled { at };
                let stone = place.stone.ok_or(refuse)?;
                let pun = self.pun.as_ref().ok_or(refuse)?;
                let new = isa::punned_jump(at, stone, &pun.bytes)?.ok_or(refuse)?;
                patches.push(Patch {
                    at,
                    old: window.clone(),
                    new,
                });
            }
            (_, Some(range)) => {
                let stop = bias.to_avma(range.start);
                patches.push(Patch {
                    at: stop,
                    old: landing.clone(),
                    new: isa::jump(stop, trampoline)?,
                });
                patches.extend(self.filled(at, &isa::short_jump(at, stop)?));
            }
            (_, None) => patches.extend(self.filled(at, &isa::jump(at, trampoline)?)),
        }
        Ok(patches)
    }

    /// Patches for `jump`, followed by breakpoints up to the end of the window, where control never
    /// arrives. The bytes of other sites' landings are left out.
    fn filled(&self, at: Avma, jump: &[u8]) -> Vec<Patch> {
        let [old, _] = &self.old;
        let mut new = jump.to_vec();
        new.resize(old.len(), BREAKPOINT);
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
