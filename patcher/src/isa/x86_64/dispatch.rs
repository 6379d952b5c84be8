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

/// The encoding of a comparison of the target of the indirect jump `jump` with `target`, by their
/// lower halves. `None` if it is no such jump, or if it depends on the stack or instruction pointer
/// ([`Insn::is_comparable_jump`]).
fn comparison(jump: &[u8], target: Avma) -> Option<Vec<u8>> {
    // notrack, or a branch hint.
    let prefixes = jump
        .iter()
        .take_while(|&&b| matches!(b, 0x2e | 0x3e | 0xf2));
    let insn = &jump[prefixes.count()..];
    let has_rex = insn.first().is_some_and(|byte| byte & 0xf0 == 0x40);
    let (rex, insn) = insn.split_at(usize::from(has_rex));
    let [0xff, modrm, operand @ ..] = insn else {
        return None;
    };
    // Without REX.W, 32 bits are compared.
    let rex = rex.iter().map(|rex| rex & !8);
    let opcode = [0x81, modrm | 7 << 3]; // cmp r/m32, imm32: /7 instead of /4
    let bytes = rex.chain(opcode).chain(operand.iter().copied());
    let low = (target.0 as u32).to_le_bytes();
    (modrm & 7 << 3 == 4 << 3).then(|| bytes.chain(low).collect())
}

/// `lea rsp, [rsp - 128]`, `pushfq`: saves the flags and keeps the red zone.
const SAVE_FLAGS: [u8; 6] = [0x48, 0x8d, 0x64, 0x24, 0x80, 0x9c];
/// `popfq`, `lea rsp, [rsp + 128]`.
const RESTORE_FLAGS: [u8; 9] = [0x9d, 0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0];

/// The maximum length of [`Code::unless_leads_to`] and what follows the hook, in bytes.
pub const COMPARED: usize = 64;

impl Code {
    /// Appends a jump to the label `otherwise` unless the indirect jump `jump` leads to `target`.
    /// Preserves the flags unless `are_free`. False if the jump cannot be compared.
    pub fn unless_leads_to(
        &mut self,
        jump: &[u8],
        target: Avma,
        are_free: bool,
        otherwise: usize,
    ) -> bool {
        let Some(comparison) = comparison(jump, target) else {
            return false;
        };
        if are_free {
            self.put(&comparison);
            self.branch(&[0x0f, 0x85], Goal::Label(otherwise)); // jne
            return true;
        }
        let is_other = self.label();
        let leads = self.label();
        self.put(&SAVE_FLAGS);
        self.put(&comparison);
        self.branch(&[0x0f, 0x85], Goal::Label(is_other)); // jne
        self.put(&RESTORE_FLAGS);
        self.jump(Goal::Label(leads));
        self.place(is_other);
        self.put(&RESTORE_FLAGS);
        self.jump(Goal::Label(otherwise));
        self.place(leads);
        true
    }

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

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions, Mnemonic, OpKind};

    const TARGET: Avma = Avma(0x7fff_8123_4567);

    #[test]
    fn targets_are_compared_where_the_jump_reads_them() {
        let jumps: [&[u8]; 8] = [
            &[0xff, 0xe0],                               // jmp rax
            &[0x3e, 0xff, 0xe1],                         // notrack jmp rcx
            &[0x41, 0xff, 0xe1],                         // jmp r9
            &[0x3e, 0x41, 0xff, 0xe4],                   // notrack jmp r12
            &[0xff, 0x24, 0xc5, 0, 0x20, 0x40, 0],       // jmp [8*rax + 0x402000]
            &[0x41, 0xff, 0x24, 0xce],                   // jmp [r14 + 8*rcx]
            &[0x3e, 0xff, 0x24, 0xfd, 0, 0x20, 0x40, 0], // notrack jmp [8*rdi + 0x402000]
            &[0x42, 0xff, 0xa4, 0xe3, 0x10, 1, 0, 0],    // jmp [rbx + 8*r12 + 0x110]
        ];
        for bytes in jumps {
            let decode = |bytes: &[u8]| Decoder::new(64, bytes, DecoderOptions::NONE).decode();
            let jump = decode(bytes);
            assert!(Insn(jump).is_comparable_jump(), "{bytes:x?}");
            let compared = comparison(bytes, TARGET).expect("a comparison");
            let insn = decode(&compared);
            assert_eq!(insn.len(), compared.len());
            assert_eq!(insn.mnemonic(), Mnemonic::Cmp);
            assert_eq!(insn.immediate32(), TARGET.0 as u32);
            if jump.op0_kind() == OpKind::Register {
                let [of_jump, own] = [&jump, &insn].map(|i| i.op0_register().full_register());
                assert_eq!(own, of_jump);
                assert!(insn.op0_register().is_gpr32());
            } else {
                assert_eq!(insn.memory_size().size(), 4);
                assert_eq!(insn.memory_base(), jump.memory_base());
                assert_eq!(insn.memory_index(), jump.memory_index());
                assert_eq!(insn.memory_index_scale(), jump.memory_index_scale());
                let [own, of_jump] = [&insn, &jump].map(|i| i.memory_displacement64());
                assert_eq!(own, of_jump);
            }
        }
    }

    #[test]
    fn other_jumps_are_not_compared() {
        // A call, a jump to a fixed address, and jumps by the stack or instruction pointer.
        let others: [&[u8]; 5] = [
            &[0xff, 0xd0],
            &[0xe9, 0, 0, 0, 0],
            &[0xff, 0x64, 0x24, 8],
            &[0xff, 0x25, 0, 0, 0, 0],
            &[0x64, 0xff, 0x24, 0xc5, 0, 0, 0, 0],
        ];
        for bytes in others {
            let insn = Decoder::new(64, bytes, DecoderOptions::NONE).decode();
            assert!(!Insn(insn).is_comparable_jump(), "{bytes:x?}");
        }
        assert_eq!(comparison(others[0], TARGET), None);
        assert_eq!(comparison(others[1], TARGET), None);
    }
}
