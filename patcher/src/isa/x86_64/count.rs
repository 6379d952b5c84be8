//! A hook that counts in the calling thread's bank, as `abi::count` lays it out.

use super::code::{Code, Goal};
use super::late::{LookUp, Spill};
use super::patch::CodeError;
use super::relocate::{BACK_OVER_RED_ZONE, SKIP_RED_ZONE};
use super::uses::Registers;
use crate::addr::Avma;

/// The layout of banks, as in the crate `abi`.
pub struct CountIn;

impl CountIn {
    /// The bits of a thread pointer, after a shift to the right, that are the distance of its entry
    /// from [`Self::HASHED`].
    pub const BANK_OF: u32 = 0x3f0;
    /// See [`Self::BANK_OF`].
    pub const BANK_SHIFT: u8 = 8;
    /// The offset of the bank's address in an entry. The owner is at offset 0.
    pub const AT: u8 = 8;
    /// The offset of the entries of all threads but the first one, whose entry comes first.
    pub const HASHED: u8 = 16;
}

/// The maximum length of a hook that counts, in bytes, without the call of the stub.
pub const COUNT: usize = 128;

/// The prefix and the register fields of an instruction with the registers `reg` and `base`.
pub(super) fn fields(is_64: bool, reg: u8, base: u8) -> (u8, u8) {
    let prefix = 0x40 | u8::from(is_64) << 3 | (reg >> 3) << 2 | base >> 3;
    (prefix, (reg & 7) << 3 | base & 7)
}

impl Code {
    /// Appends a hook that increments counter `number` in the thread's bank. `table` is the cell
    /// with the address of the table of banks. If the thread has no bank, it jumps to the label
    /// `otherwise`, from where control must continue at `after`. Returns true if the red zone is
    /// still below the stack pointer there.
    ///
    /// It preserves all registers but those in `free`, and the flags unless `are_free`. It reads
    /// the thread pointer from the first word of the control block. Fails if `table` is out of
    /// reach.
    pub fn count(
        &mut self,
        number: u32,
        (registers, are_free): (Registers, bool),
        table: Avma,
        (otherwise, after): (usize, usize),
    ) -> Result<bool, CodeError> {
        let spill = Spill::of(registers, are_free, 2);
        let [thread, bank] = [spill.used[0], spill.used[1]];
        self.spill(&spill);
        self.look_up(thread, bank, table, otherwise)?;
        self.increment(bank, number);
        self.place(after);
        self.unspill(&spill);
        Ok(spill.is_empty())
    }

    /// Saves what a hook overwrites.
    pub(super) fn spill(&mut self, spill: &Spill) {
        if !spill.is_empty() {
            self.put(&SKIP_RED_ZONE);
        }
        for &register in &spill.saved {
            self.push(register);
        }
        if spill.saves_flags {
            self.flags_to_rax();
        }
    }

    /// Restores what [`Self::spill`] has saved.
    pub(super) fn unspill(&mut self, spill: &Spill) {
        if spill.saves_flags {
            self.flags_from_rax();
        }
        for &register in spill.saved.iter().rev() {
            self.pop(register);
        }
        if !spill.is_empty() {
            self.put(&BACK_OVER_RED_ZONE);
        }
    }

    /// Appends code that sets `bank` to the address of the thread's bank. If the thread has none,
    /// it jumps to the label `otherwise`. Overwrites `thread`, `bank` and the flags. Fails if
    /// `table` is out of reach.
    ///
    /// The first entry of the table is compared at once. The entry of another thread is found by
    /// [`Self::look_ups`].
    pub(super) fn look_up(
        &mut self,
        thread: u8,
        bank: u8,
        table: Avma,
        otherwise: usize,
    ) -> Result<(), CodeError> {
        let [hashed, found] = [self.label(), self.label()];
        let (prefix, modrm) = fields(true, bank, 5);
        self.rip_relative(&[prefix & !1, 0x8b, modrm, 0, 0, 0, 0], 3, table)?; // mov bank, [table]
        let (prefix, modrm) = fields(true, thread, 4);
        self.put(&[0x64, prefix & !1, 0x8b, modrm, 0x25, 0, 0, 0, 0]); // mov thread, fs:[0]
        self.bank_of((thread, bank), 0, hashed);
        self.place(found);
        self.look_ups.push(LookUp {
            registers: (thread, bank),
            table,
            labels: [hashed, found, otherwise],
        });
        Ok(())
    }

    /// Appends the code that looks up the banks of all threads but the first one. Fails if a table
    /// is out of reach.
    pub fn look_ups(&mut self) -> Result<(), CodeError> {
        for of in std::mem::take(&mut self.look_ups) {
            let (thread, bank) = of.registers;
            let [hashed, found, otherwise] = of.labels;
            self.place(hashed);
            let (prefix, modrm) = fields(false, thread, bank);
            self.put(&[prefix, 0x89, 0xc0 | modrm]); // mov bank, thread (32 bits)
            let (prefix, modrm) = fields(false, 5, bank);
            self.put(&[prefix & !4, 0xc1, 0xc0 | modrm, CountIn::BANK_SHIFT]); // shr bank, 8
            let (prefix, modrm) = fields(false, 4, bank);
            self.put(&[prefix & !4, 0x81, 0xc0 | modrm]); // and bank, 0x3f0
            self.put(&CountIn::BANK_OF.to_le_bytes());
            let (prefix, modrm) = fields(true, bank, 5);
            let add = [prefix & !1, 0x03, modrm, 0, 0, 0, 0];
            self.rip_relative(&add, 3, of.table)?; // add bank, [table]
            self.bank_of((thread, bank), CountIn::HASHED, otherwise);
            self.jump(Goal::Label(found));
        }
        Ok(())
    }

    /// Appends code that loads the bank of the entry at `[bank + offset]`. If the thread is not its
    /// owner, it jumps to the label `otherwise`.
    fn bank_of(&mut self, (thread, bank): (u8, u8), offset: u8, otherwise: usize) {
        let (prefix, modrm) = fields(true, thread, bank);
        self.put(&[prefix, 0x39, 0x40 | modrm, offset]); // cmp [bank + offset], thread
        self.branch(&[0x0f, 0x85], Goal::Label(otherwise)); // jne: another owner
        let (prefix, modrm) = fields(true, bank, bank);
        let at = offset + CountIn::AT;
        self.put(&[prefix, 0x8b, 0x40 | modrm, at]); // mov bank, [bank + offset + 8]
    }

    /// Appends `inc qword ptr [bank + 8 * number]`.
    pub(super) fn increment(&mut self, bank: u8, number: u32) {
        let (prefix, modrm) = fields(true, 0, bank);
        self.put(&[prefix & !4, 0xff, 0x80 | modrm]);
        self.put(&number.wrapping_mul(8).to_le_bytes());
    }

    /// Moves the status flags to ax. Returns the addresses of the instructions.
    pub(super) fn flags_to_rax(&mut self) -> [Avma; 2] {
        let first = self.here();
        self.put(&[0x9f]); // lahf: all flags except overflow, into ah
        let second = self.here();
        self.put(&[0x0f, 0x90, 0xc0]); // seto al: overflow into al
        [first, second]
    }

    /// Restores the status flags from ax. Returns the addresses of the instructions.
    pub(super) fn flags_from_rax(&mut self) -> [Avma; 2] {
        let first = self.here();
        self.put(&[0x04, 0x7f]); // add al, 127: overflow
        let second = self.here();
        self.put(&[0x9e]); // sahf: the other flags
        [first, second]
    }

    fn push(&mut self, register: u8) {
        if register >= 8 {
            self.put(&[0x41]);
        }
        self.put(&[0x50 | register & 7]); // push
    }

    fn pop(&mut self, register: u8) {
        if register >= 8 {
            self.put(&[0x41]);
        }
        self.put(&[0x58 | register & 7]); // pop
    }
}
