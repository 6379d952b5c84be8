//! Jumps through a register to one of several addresses, in code that runs elsewhere.
//!
//! The copy of such a jump has a table with an entry for each address from the first target to the
//! last one. Entries of targets lead to their copies, all others out of the copy, as do addresses
//! that have no entry:
//!
//! ```text
//!     sub  r, [rip + first]
//!     cmp  r, last - first
//!     ja   out of the copy
//!     lea  r, [8*r]
//!     add  r, [rip + entries]
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
pub const DISPATCH: usize = 80;

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
        8 * (self.entries() + 3)
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

/// The labels of a dispatch.
#[derive(Clone, Copy, Debug)]
pub struct DispatchLabels {
    /// The word with the address of the first target.
    pub first: usize,
    /// The word with the address of the entries.
    pub entries: usize,
    /// The way for addresses between the targets.
    pub between: usize,
    /// The way for other addresses.
    pub beyond: usize,
}

impl DispatchLabels {
    /// New labels of `code`.
    pub fn new(code: &mut Code) -> Self {
        Self {
            first: code.label(),
            entries: code.label(),
            between: code.label(),
            beyond: code.label(),
        }
    }
}

impl Code {
    /// Appends a jump by the table of `labels`. It overwrites the register and the flags.
    pub fn dispatch(&mut self, of: &Dispatch, labels: DispatchLabels) {
        let (high, low) = of.bits();
        self.with_word(0x2b, of, labels.first); // sub r, [rip + first]
        self.put(&[0x48 | high, 0x81, 0xf8 | low]); // cmp r, imm32
        self.put(&(of.entries() as u32 - 1).to_le_bytes());
        self.branch(&[0x0f, 0x87], Goal::Label(labels.beyond)); // ja
        let scaled = 0xc5 | low << 3;
        self.put(&[0x48 | high << 2 | high << 1, 0x8d, low << 3 | 4, scaled]);
        self.put(&[0; 4]); // lea r, [8*r + disp32]
        self.with_word(0x03, of, labels.entries); // add r, [rip + entries]
        self.put(&[0x3e, 0x40 | high, 0xff, 0x60 | low, 0]); // notrack jmp [r]
    }

    /// Appends code that restores the register after [`Self::dispatch`] has led to `between` or
    /// `beyond`.
    pub fn undo_dispatch(&mut self, of: &Dispatch, labels: DispatchLabels) {
        let (high, low) = of.bits();
        self.place(labels.between);
        self.with_word(0x2b, of, labels.entries); // sub r, [rip + entries]
        self.put(&[0x48 | high, 0xc1, 0xe8 | low, 3]); // shr r, 3
        self.place(labels.beyond);
        self.with_word(0x03, of, labels.first); // add r, [rip + first]
    }

    /// Appends `opcode` for the register and the word at a label.
    fn with_word(&mut self, opcode: u8, of: &Dispatch, label: usize) {
        let (high, low) = of.bits();
        let opcode = [0x48 | high << 2, opcode, low << 3 | 5];
        self.branch(&opcode, Goal::Label(label));
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

    /// Appends the table of `labels`: the label of each target in `targets`, and the way for all
    /// addresses between them.
    pub fn dispatch_table(
        &mut self,
        of: &Dispatch,
        labels: DispatchLabels,
        targets: &[usize],
        bias: Bias,
    ) {
        while !self.here().0.is_multiple_of(8) {
            self.put(&[BREAKPOINT]);
        }
        let first = bias.to_avma(of.targets[0]);
        self.place(labels.first);
        self.put(&first.0.to_le_bytes());
        self.place(labels.entries);
        let entries = self.here().plus(8);
        self.put(&entries.0.to_le_bytes());
        let mut targets = of.targets.iter().zip(targets).peekable();
        for at in 0..of.entries() as u64 {
            let is_it = |(target, _): &(&Svma, &usize)| bias.to_avma(**target) == first.plus(at);
            let label = targets.next_if(is_it).map(|(_, &label)| label);
            self.word(label.unwrap_or(labels.between));
        }
    }
}
