//! Jumps through a register to one of several addresses, in code that runs elsewhere.
//!
//! The copy of such a jump has a table with an entry for each address from the first target to the
//! last one. Entries of targets lead to their copies, all others out of the copy:
//!
//! ```text
//!     lea  r, [8*r]
//!     add  r, [rip + base]    base = table - 8*first
//!     jmp  [r]
//! ```

use iced_x86::Register;

use super::code::{Code, Goal};
use super::insn::{Insn, Reg};
use super::patch::{BREAKPOINT, CodeError};
use crate::addr::{Avma, Bias, Svma};

/// A jump to the address in a register, which is one of several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dispatch {
    register: Reg,
    targets: Vec<Svma>,
    /// True if the register must have its value again at the targets.
    pub keeps: bool,
}

/// The maximum number of bytes from the first target of a jump to the last one.
const MOST_SPANNED: u64 = 2048;

/// The maximum length of the code of a dispatch, in bytes, without the way out of the copy.
pub const DISPATCH: usize = 48;

impl Dispatch {
    /// The jump `insn`, to one of `targets`. `None` if it does not take the address from a
    /// register, or if the targets are too far from each other.
    pub fn of(insn: &Insn, mut targets: Vec<Svma>) -> Option<Self> {
        targets.sort_unstable();
        targets.dedup();
        let span = targets.last()?.0 - targets.first()?.0;
        // Addresses relative to r12 have another encoding.
        let is_usable = |&Reg(r): &Reg| r != Register::RSP && r != Register::R12;
        let register = insn.jump_register().filter(is_usable)?;
        (span <= MOST_SPANNED).then_some(Self {
            register,
            targets,
            keeps: true,
        })
    }

    /// The register, which the copy of the jump overwrites.
    pub fn register(&self) -> Reg {
        self.register
    }

    /// The addresses to which it may jump, ascending.
    pub fn targets(&self) -> &[Svma] {
        &self.targets
    }

    /// An upper bound of the length of its table, in bytes.
    pub fn table_len(&self) -> usize {
        8 * (self.entries() + 2)
    }

    /// The highest bit of the register's number, and the others.
    fn bits(&self) -> (u8, u8) {
        let number = self.register.0.number() as u8;
        (number >> 3, number & 7)
    }

    fn entries(&self) -> usize {
        (self.targets[self.targets.len() - 1].0 - self.targets[0].0) as usize + 1
    }
}

impl Code {
    /// Appends a jump by the table at the label `table`. It overwrites the register and the flags.
    pub fn dispatch(&mut self, of: &Dispatch, table: usize) {
        let (high, low) = of.bits();
        let index = 0xc5 | low << 3;
        // lea r, [8*r + disp32]
        self.put(&[
            0x48 | high << 2 | high << 1,
            0x8d,
            low << 3 | 4,
            index,
            0,
            0,
            0,
            0,
        ]);
        self.branch(&[0x48 | high << 2, 0x03, low << 3 | 5], Goal::Label(table)); // add r, [rip + table]
        self.put(&[0x3e, 0x40 | high, 0xff, 0x60 | low, 0]); // notrack jmp [r]
    }

    /// Appends code that restores the register after [`Self::dispatch`] has led here.
    pub fn undo_dispatch(&mut self, of: &Dispatch, table: usize) {
        let (high, low) = of.bits();
        self.branch(&[0x48 | high << 2, 0x2b, low << 3 | 5], Goal::Label(table)); // sub r, [rip + table]
        self.put(&[0x48 | high, 0xc1, 0xe8 | low, 3]); // shr r, 3
    }

    /// Appends code that gives the register the value that it has at `target`. Fails if the target
    /// is out of reach.
    pub fn restore_target(&mut self, of: &Dispatch, target: Avma) -> Result<(), CodeError> {
        let (high, low) = of.bits();
        let lea = [0x48 | high << 2, 0x8d, low << 3 | 5, 0, 0, 0, 0];
        self.rip_relative(&lea, 3, target)
    }

    /// Appends a jump to the address in the register.
    pub fn jump_to(&mut self, of: &Dispatch) {
        let (high, low) = of.bits();
        self.put(&[0x3e, 0x40 | high, 0xff, 0xe0 | low]); // notrack jmp r
    }

    /// Appends the table at the label `table`: the label of each target, and `otherwise` for all
    /// addresses between them.
    pub fn dispatch_table(
        &mut self,
        of: &Dispatch,
        (table, otherwise): (usize, usize),
        labels: &[usize],
        bias: Bias,
    ) {
        while !self.here().0.is_multiple_of(8) {
            self.put(&[BREAKPOINT]);
        }
        self.place(table);
        let first = bias.to_avma(of.targets[0]).0;
        let entries = self.here().plus(8);
        let base = entries.0.wrapping_sub(first.wrapping_mul(8));
        self.put(&base.to_le_bytes());
        let mut targets = of.targets.iter().zip(labels).peekable();
        for at in 0..of.entries() as u64 {
            let is_it = |(target, _): &(&Svma, &usize)| bias.to_avma(**target) == Avma(first + at);
            let label = targets
                .next_if(is_it)
                .map_or(otherwise, |(_, &label)| label);
            self.word(label);
        }
    }
}
