//! Code under construction, with labels for the displaced instructions.

use super::late::{LookUp, Slow};
use super::patch::{CodeError, JUMP, rel32};
use super::relocate::{BACK_OVER_RED_ZONE, Displaced, Form, HIGH_HALF, SKIP_RED_ZONE};
use crate::addr::{Avma, Bias, Svma};

/// The maximum length of a hook at the ends of activations, in bytes. Nothing is live below the
/// stack pointer there.
///
/// The code is `push rax; mov eax, imm32; call [rip + disp32]; pop rax`.
pub const HOOK: usize = 1 + 5 + 6 + 1;
/// The maximum length of a hook at any other instruction, in bytes. The red zone is live there
/// (psABI 3.2.2), so `lea rsp, [rsp - 128]` and `lea rsp, [rsp + 128]` surround the hook.
pub const HOOK_AT_POINT: usize = HOOK + SKIP_RED_ZONE.len() + BACK_OVER_RED_ZONE.len();

/// The target of a jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// An address outside the trampoline.
    Outside(Avma),
    /// The copy of the instruction at this original address, in the row of this number.
    Copy(usize, Svma),
    /// A label in the trampoline.
    Label(usize),
}

/// Code to be placed at `base`.
#[derive(Debug)]
pub struct Code {
    base: Avma,
    bytes: Vec<u8>,
    /// The 32-bit displacements to resolve: the offset of the displacement in `bytes`, and its
    /// goal.
    fixups: Vec<(usize, Goal)>,
    /// The words to resolve: the offset in `bytes`, and the label whose address it gets.
    words: Vec<(usize, usize)>,
    /// The copies of instructions: the row's number, the original address, and the offset in
    /// `bytes`.
    copies: Vec<(usize, Svma, usize)>,
    /// The offset in `bytes` of each label; `None` until it is placed.
    labels: Vec<Option<usize>>,
    /// The searches for banks that follow all other code.
    pub(super) look_ups: Vec<LookUp>,
    /// The calls of the stub of paths that follow all other code.
    pub(super) slow: Vec<Slow>,
}

impl Code {
    /// Empty code, to be placed at `base`.
    pub fn new(base: Avma) -> Self {
        Self {
            base,
            bytes: Vec::new(),
            fixups: Vec::new(),
            words: Vec::new(),
            copies: Vec::new(),
            labels: Vec::new(),
            look_ups: Vec::new(),
            slow: Vec::new(),
        }
    }

    /// The address of the next byte to append.
    pub fn here(&self) -> Avma {
        self.base.plus(self.bytes.len() as u64)
    }

    /// Appends `bytes` unchanged.
    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }

    /// Appends `opcode` and a 32-bit displacement to `goal`.
    pub(super) fn branch(&mut self, opcode: &[u8], goal: Goal) {
        self.put(opcode);
        self.fixups.push((self.bytes.len(), goal));
        self.put(&[0; 4]);
    }

    /// Appends `bytes`, an instruction whose displacement at `offset` is set to reach `target`.
    /// Appends nothing and fails if `target` is out of reach.
    pub(super) fn rip_relative(
        &mut self,
        bytes: &[u8],
        offset: usize,
        target: Avma,
    ) -> Result<(), CodeError> {
        let start = self.bytes.len();
        let field = rel32(self.here().plus(bytes.len() as u64), target)?;
        self.put(bytes);
        self.bytes[start + offset..start + offset + 4].copy_from_slice(&field);
        Ok(())
    }

    /// Appends the address of `label`, in 8 bytes.
    pub(super) fn word(&mut self, label: usize) {
        self.words.push((self.bytes.len(), label));
        self.put(&[0; 8]);
    }

    /// Appends a jump to `goal`.
    pub fn jump(&mut self, goal: Goal) {
        self.branch(&[0xe9], goal);
    }

    /// Appends a hook that calls the function at the address in `cell`, with `number` in eax.
    ///
    /// It preserves every register and flag that the callee preserves. With `keeps_red_zone`, it
    /// also preserves the red zone. Fails if `cell` is out of reach.
    pub fn hook(&mut self, number: u32, cell: Avma, keeps_red_zone: bool) -> Result<(), CodeError> {
        if keeps_red_zone {
            self.put(&SKIP_RED_ZONE);
        }
        self.put(&[0x50]); // push rax: the number is passed in it
        self.put(&[0xb8]); // mov eax, number
        self.put(&number.to_le_bytes());
        self.rip_relative(&[0xff, 0x15, 0, 0, 0, 0], 2, cell)?; // call [rip + cell]
        self.put(&[0x58]); // pop rax
        if keeps_red_zone {
            self.put(&BACK_OVER_RED_ZONE);
        }
        Ok(())
    }

    /// Appends the moved form of `displaced`. A jump leads to `goal`, or to its original target if
    /// `goal` is `None`. Fails if an operand in memory is out of reach and no other form exists.
    pub fn displaced(
        &mut self,
        displaced: &Displaced,
        bias: Bias,
        goal: Option<Goal>,
    ) -> Result<(), CodeError> {
        let goal = |target: Svma| goal.unwrap_or(Goal::Outside(bias.to_avma(target)));
        match &displaced.form {
            Form::Copy => self.put(&displaced.bytes),
            Form::RipRelative {
                offset,
                target,
                far,
            } => {
                let target = bias.to_avma(*target);
                let near = self.rip_relative(&displaced.bytes, *offset, target);
                if near.is_err() {
                    let at = bias.to_avma(displaced.at);
                    let far = far.as_ref().ok_or(CodeError::NoFarForm { at })?;
                    far.encode(target, &mut self.bytes);
                }
            }
            Form::Jump { target } => self.jump(goal(*target)),
            Form::Conditional { target, opcode } => self.branch(&[0x0f, *opcode], goal(*target)),
            Form::Counted { target } => {
                // If taken, it skips the short jump that skips the long one.
                self.put(&displaced.bytes[..displaced.bytes.len() - 1]);
                self.put(&[0x02]);
                self.put(&[0xeb, JUMP as u8]);
                self.jump(goal(*target));
            }
            Form::Call { target } => {
                self.push_return(displaced, bias);
                self.jump(Goal::Outside(bias.to_avma(*target)));
            }
            Form::CallThrough { jump, rip_relative } => {
                self.push_return(displaced, bias);
                match rip_relative {
                    None => self.put(jump),
                    Some((offset, target)) => {
                        self.rip_relative(jump, *offset, bias.to_avma(*target))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Pushes the address after `call`. Preserves all registers and flags.
    fn push_return(&mut self, call: &Displaced, bias: Bias) {
        let address = bias.to_avma(call.end()).0;
        let (low, high) = (address as u32, (address >> 32) as u32);
        self.put(&[0x68]); // push imm32, sign-extended
        self.put(&low.to_le_bytes());
        if i64::from(low as i32) as u64 != address {
            self.put(&HIGH_HALF);
            self.put(&high.to_le_bytes());
        }
    }

    /// Marks the current address as the start of the copy, in `row`, of the instruction at
    /// `original`.
    pub fn begin_copy(&mut self, row: usize, original: Svma) {
        self.copies.push((row, original, self.bytes.len()));
    }

    /// Returns a new label, not yet placed.
    pub fn label(&mut self) -> usize {
        self.labels.push(None);
        self.labels.len() - 1
    }

    /// Places `label` at the current address.
    pub fn place(&mut self, label: usize) {
        self.labels[label] = Some(self.bytes.len());
    }

    /// Resolves all displacements and returns the code. Fails if a goal is out of reach or has not
    /// been placed.
    pub fn finish(mut self) -> Result<Vec<u8>, CodeError> {
        for (field, goal) in std::mem::take(&mut self.fixups) {
            let inside = |offset: usize| self.base.plus(offset as u64);
            let next = inside(field + 4);
            let to = match goal {
                Goal::Outside(to) => Some(to),
                Goal::Copy(row, at) => {
                    let copy = self.copies.iter().find(|c| c.0 == row && c.1 == at);
                    copy.map(|c| inside(c.2))
                }
                Goal::Label(label) => self.labels[label].map(inside),
            };
            // An unplaced goal counts as out of reach.
            let to = to.ok_or(CodeError::OutOfReach {
                from: next,
                to: Avma(0),
            })?;
            self.bytes[field..field + 4].copy_from_slice(&rel32(next, to)?);
        }
        for (word, label) in std::mem::take(&mut self.words) {
            let from = self.base.plus(word as u64);
            let to = self.labels[label].ok_or(CodeError::OutOfReach { from, to: Avma(0) })?;
            let to = self.base.plus(to as u64);
            self.bytes[word..word + 8].copy_from_slice(&to.0.to_le_bytes());
        }
        Ok(self.bytes)
    }
}
