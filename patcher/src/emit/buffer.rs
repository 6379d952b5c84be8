//! Code in the making, with labels for the displaced instructions.

use crate::addr::{Avma, Svma};

use super::terms::EmitError;

/// The displacement that leads from `next`, the end of an instruction, to `to`.
pub fn rel32(next: Avma, to: Avma) -> Result<[u8; 4], EmitError> {
    i32::try_from(to.0.wrapping_sub(next.0) as i64)
        .map(i32::to_le_bytes)
        .map_err(|_| EmitError::OutOfReach { from: next, to })
}

/// Where a jump goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// To an address outside the trampoline.
    Outside(Avma),
    /// To the copy, in this row, of this original instruction.
    Copy(usize, Svma),
    /// To a numbered place in the trampoline.
    Label(usize),
}

/// Bytes that will stand at `base`.
#[derive(Debug)]
pub struct Buffer {
    base: Avma,
    bytes: Vec<u8>,
    fixups: Vec<(usize, Goal)>,
    copies: Vec<(usize, Svma, usize)>,
    labels: Vec<Option<usize>>,
}

impl Buffer {
    pub fn new(base: Avma) -> Self {
        Self {
            base,
            bytes: Vec::new(),
            fixups: Vec::new(),
            copies: Vec::new(),
            labels: Vec::new(),
        }
    }

    /// The address of the next byte.
    pub fn here(&self) -> Avma {
        self.base.plus(self.bytes.len() as u64)
    }

    /// Appends bytes as they are.
    pub fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }

    /// Appends `opcode` and a 32-bit displacement to `goal`.
    pub fn jump(&mut self, opcode: &[u8], goal: Goal) {
        self.put(opcode);
        self.fixups.push((self.bytes.len(), goal));
        self.put(&[0; 4]);
    }

    /// Appends `bytes`, an instruction whose displacement at `offset` names `target`.
    pub fn rip_relative(
        &mut self,
        bytes: &[u8],
        offset: usize,
        target: Avma,
    ) -> Result<(), EmitError> {
        let start = self.bytes.len();
        let field = rel32(self.here().plus(bytes.len() as u64), target)?;
        self.put(bytes);
        self.bytes[start + offset..start + offset + 4].copy_from_slice(&field);
        Ok(())
    }

    /// From here on the copy, in `row`, of the instruction at `original` stands.
    pub fn begin_copy(&mut self, row: usize, original: Svma) {
        self.copies.push((row, original, self.bytes.len()));
    }

    /// A new label, not yet placed.
    pub fn label(&mut self) -> usize {
        self.labels.push(None);
        self.labels.len() - 1
    }

    /// Places `label` here.
    pub fn place(&mut self, label: usize) {
        self.labels[label] = Some(self.bytes.len());
    }

    /// The code with every displacement filled in.
    pub fn finish(mut self) -> Result<Vec<u8>, EmitError> {
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
            // An unplaced goal cannot be reached from anywhere.
            let to = to.ok_or(EmitError::OutOfReach {
                from: next,
                to: Avma(0),
            })?;
            self.bytes[field..field + 4].copy_from_slice(&rel32(next, to)?);
        }
        Ok(self.bytes)
    }
}
