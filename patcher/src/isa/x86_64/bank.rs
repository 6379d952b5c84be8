//! Copies of code that keep the bank of the thread in a register, as `abi::count` lays it out.
//!
//! If the register is not free, its value is on the stack while the copy runs, below the red zone.
//! The stack pointer is then lower than in the original code by [`LOWERED`] bytes:
//!
//! ```text
//! rsp + 48    the red zone of the original code
//! rsp + 40    the slot of the activation, if a path is followed
//! rsp + 32    a register for the slot, while it is looked up
//! rsp + 24    the bank, if a path is followed
//! rsp + 16    the register for the thread pointer, while the bank is looked up
//! rsp + 8     rax, while it holds the flags, or on the way out
//! rsp         the register for the bank
//! ```
//!
//! If a path is followed, the register has the address of the bank plus the sum in the slot of the
//! activation, so the counter of the path is at a fixed distance.

use iced_x86::{Encoder, InstructionInfoFactory, OpKind, Register};

use super::code::{Code, Goal};
use super::count::{RAX, SCRATCH, fields};
use super::insn::Insn;
use super::patch::CodeError;
use super::path_row::{PathKey, PathRow, immediate};
use super::uses::Registers;
use crate::addr::Avma;

/// The register with the address of the bank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BankRegister {
    number: u8,
    is_spilled: bool,
    /// True if the register follows the path.
    follows: bool,
}

/// The path of an activation on the way into a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathEntry {
    /// The key of the activation.
    pub key: PathKey,
    /// The cell with the address of the table of slots.
    pub slots: Avma,
    /// The lowest number that may have to be added to the sum, as an offset of a counter.
    least: i32,
    /// The number of sums for which each path has a counter, as an offset.
    sums: i32,
}

impl PathEntry {
    /// At a place where a path of `paths` may be. To get its number, between `least` and `most`
    /// must be added to the sum, modulo 2^64. `None` if the numbers are too large.
    pub fn new(
        (key, slots): (PathKey, Avma),
        paths: u64,
        (least, most): (u64, u64),
    ) -> Option<Self> {
        let others = most.wrapping_sub(least);
        let sums = paths.checked_sub(others).filter(|&sums| sums > 0)?;
        Some(Self {
            key,
            slots,
            least: immediate(least)?,
            sums: immediate(sums)?,
        })
    }
}

/// Where a copy must save the flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SavedFlags {
    /// On the way into the copy.
    pub at_entry: bool,
    /// At an increment.
    pub at_counts: bool,
}

/// Bytes from the stack pointer in a copy up to that in the original code, if the register of the
/// bank is spilled.
pub const LOWERED: u64 = abi::image::COPY_LOWERED;
/// The maximum length of [`Code::enter`], in bytes.
pub const ENTER: usize = 320;
/// The maximum length of [`Code::count_in`], in bytes.
pub const COUNT_IN: usize = 32;
/// The maximum length of [`Code::leave`], in bytes.
pub const LEAVE: usize = 56;
/// The maximum length of [`Code::reload`] and of [`Code::advance`], in bytes.
pub const ADVANCE: usize = 8;
/// Bytes by which an instruction grows at most if its operand is relative to a lower stack pointer.
pub const GROWS: usize = 4;

const OF_BANK: u8 = 0;
const OF_FLAGS: u8 = 8;
const OF_THREAD: u8 = 16;
const OF_SLOT: u8 = 32;
const BANK: u8 = 24;
const SLOT: u8 = 40;

impl BankRegister {
    /// A register for a copy of `insns`. The registers in `free` are free before each of them.
    /// `flags` says where the flags must be saved. `None` if the instructions use all registers, or
    /// if they use the stack pointer in a way that does not allow it to be lower.
    pub fn choose(insns: &[Insn], Registers(free): Registers, flags: SavedFlags) -> Option<Self> {
        let used = used_by(insns);
        let is_usable = |&number: &u8| {
            // The flags are saved in rax.
            used & 1 << number == 0 && (number != RAX || flags == SavedFlags::default())
        };
        let is_free = |&number: &u8| free & 1 << number != 0;
        let mut usable = SCRATCH.into_iter().filter(is_usable);
        if !flags.at_counts
            && let Some(number) = usable.clone().find(is_free)
        {
            return Some(Self {
                number,
                is_spilled: false,
                follows: false,
            });
        }
        if !insns.iter().all(may_be_lowered) {
            return None;
        }
        let number = usable.next()?;
        Some(Self {
            number,
            is_spilled: true,
            follows: false,
        })
    }

    /// A register that follows paths through a copy of `insns`. `None` as for [`Self::choose`].
    pub fn for_paths(insns: &[Insn]) -> Option<Self> {
        let used = used_by(insns);
        // The way out uses rax.
        let is_usable = |&number: &u8| used & 1 << number == 0 && number != RAX;
        let number = SCRATCH.into_iter().find(is_usable)?;
        insns.iter().all(may_be_lowered).then_some(Self {
            number,
            is_spilled: true,
            follows: true,
        })
    }

    /// The number of the register, as encoded in instructions.
    pub fn number(self) -> u8 {
        self.number
    }

    /// True if the register follows the path of the activation.
    pub fn follows(self) -> bool {
        self.follows
    }

    /// True if the register's value is on the stack while a copy runs.
    pub fn is_spilled(self) -> bool {
        self.is_spilled
    }
}

/// The registers that the instructions read or write.
fn used_by(insns: &[Insn]) -> u16 {
    let mut factory = InstructionInfoFactory::new();
    let mut used = 0;
    for insn in insns {
        for register in factory.info(&insn.0).used_registers() {
            let register = register.register().full_register();
            if register.is_gpr64() {
                used |= 1 << register.number();
            }
        }
    }
    used
}

/// True if `insn` can run with a lower stack pointer: it uses it only as the base of an address, or
/// not at all.
fn may_be_lowered(insn: &Insn) -> bool {
    let insn = &insn.0;
    let is_stack_pointer = |register: Register| register.full_register() == Register::RSP;
    let names_it = (0..insn.op_count())
        .any(|op| insn.op_kind(op) == OpKind::Register && is_stack_pointer(insn.op_register(op)));
    if insn.is_stack_instruction() || names_it {
        return false;
    }
    if insn.memory_base() == Register::RSP {
        return lowered(&Insn(*insn)).is_some();
    }
    let mut factory = InstructionInfoFactory::new();
    let mut used = factory.info(insn).used_registers().iter();
    !used.any(|used| is_stack_pointer(used.register()))
}

/// The encoding of `insn` for a stack pointer that is lower by [`LOWERED`] bytes. `None` if its
/// address is not relative to the stack pointer.
pub fn lowered(insn: &Insn) -> Option<Vec<u8>> {
    let mut insn = insn.0;
    if insn.memory_base() != Register::RSP {
        return None;
    }
    let displacement = insn.memory_displacement64().wrapping_add(LOWERED) as i64;
    i32::try_from(displacement).ok()?;
    insn.set_memory_displacement64(displacement as u64);
    let is_short = i8::try_from(displacement).is_ok();
    insn.set_memory_displ_size(if is_short { 1 } else { 8 });
    let mut encoder = Encoder::new(64);
    encoder.encode(&insn, insn.ip()).ok()?;
    Some(encoder.take_buffer())
}

impl Code {
    /// Appends the way into a copy. If the thread owns a bank, and the activation has the slot that
    /// is tried first if a `path` is followed, control continues at `inside`, with the bank in its
    /// register. Otherwise it continues after this code, with all registers and flags as before.
    ///
    /// It preserves all registers but that of the bank and those in `free`, and the flags unless
    /// `are_free`. `table` is the cell with the address of the table of banks. Fails if it is out
    /// of reach.
    pub fn enter(
        &mut self,
        bank: BankRegister,
        (Registers(free), are_free): (Registers, bool),
        (table, path): (Avma, Option<PathEntry>),
        inside: usize,
    ) -> Result<(), CodeError> {
        let is_free = |register: u8| free & 1 << register != 0;
        let saves_flags = !are_free;
        let usable = |&r: &u8| r != bank.number && !(saves_flags && r == RAX);
        let mut usable: Vec<u8> = SCRATCH.into_iter().filter(usable).collect();
        // A dozen registers are left.
        usable.sort_by_key(|&register| !is_free(register));
        let (thread, slot) = (usable[0], usable[1]);
        let saved = [
            (bank.number, OF_BANK, bank.is_spilled),
            (thread, OF_THREAD, !is_free(thread)),
            (slot, OF_SLOT, path.is_some() && !is_free(slot)),
            (RAX, OF_FLAGS, saves_flags),
        ];
        let is_lower = saved.iter().any(|&(_, _, is_saved)| is_saved);
        if is_lower {
            self.lower();
        }
        for (register, at, is_saved) in saved {
            if is_saved {
                self.stack_word(0x89, register, at);
            }
        }
        if saves_flags {
            self.flags_to_rax();
        }
        let failed = self.label();
        self.look_up(thread, bank.number, table, failed)?;
        if let Some(path) = path {
            self.take_path(bank, (thread, slot), &path, failed)?;
        }
        // Once with the bank, once without.
        for is_found in [true, false] {
            if !is_found {
                self.place(failed);
            }
            if saves_flags {
                self.flags_from_rax();
            }
            for (register, at, is_saved) in saved {
                if is_saved && !(is_found && register == bank.number) {
                    self.stack_word(0x8b, register, at);
                }
            }
            if is_lower && !(is_found && bank.is_spilled) {
                self.raise();
            }
            if is_found {
                self.jump(Goal::Label(inside));
            }
        }
        Ok(())
    }

    /// Appends code that adds the sum of the path to the register of the bank, and saves what the
    /// way out needs. It jumps to the label `failed` if the sum is not known.
    fn take_path(
        &mut self,
        bank: BankRegister,
        (sum, slot): (u8, u8),
        path: &PathEntry,
        failed: usize,
    ) -> Result<(), CodeError> {
        let lowered = (LOWERED as i32, path.slots);
        self.find_slot(&path.key, (sum, slot), lowered, failed)?;
        self.stack_word(0x89, bank.number, BANK);
        self.stack_word(0x89, slot, SLOT);
        let (prefix, modrm) = fields(true, sum, slot);
        self.put(&[prefix, 0x8b, 0x40 | modrm, PathRow::SUM]); // mov sum, [slot + SUM]
        let (prefix, modrm) = fields(true, sum, bank.number);
        self.put(&[prefix, 0x01, 0xc0 | modrm]); // add bank, sum
        let (prefix, modrm) = fields(true, 0, sum);
        self.put(&[prefix, 0x81, 0xc0 | modrm]); // add sum, least
        self.put(&path.least.to_le_bytes());
        self.put(&[prefix, 0x81, 0xf8 | modrm]); // cmp sum, sums
        self.put(&path.sums.to_le_bytes());
        self.branch(&[0x0f, 0x83], Goal::Label(failed)); // jae: not known
        Ok(())
    }

    /// Appends a load of the bank's address into its register, if a path is followed.
    pub fn reload(&mut self, bank: BankRegister) {
        self.stack_word(0x8b, bank.number, BANK);
    }

    /// Appends an addition to the sum of the path in the register of the bank, which preserves the
    /// flags.
    pub fn advance(&mut self, bank: BankRegister, by: i64) {
        let (prefix, modrm) = fields(true, bank.number, bank.number);
        self.put(&[prefix, 0x8d, 0x80 | modrm]); // lea bank, [bank + disp32]
        self.put(&(8 * by as i32).to_le_bytes());
    }

    /// Appends an increment of counter `number` in the bank. It preserves the flags unless
    /// `are_free`; if it must, the register of the bank has to be spilled. Returns the addresses of
    /// its instructions but the first.
    pub fn count_in(&mut self, bank: BankRegister, number: u32, are_free: bool) -> Vec<Avma> {
        if are_free {
            self.increment(bank.number, number);
            return Vec::new();
        }
        self.stack_word(0x89, RAX, OF_FLAGS);
        let mut starts = self.flags_to_rax().to_vec();
        starts.push(self.here());
        self.increment(bank.number, number);
        starts.extend(self.flags_from_rax());
        starts.push(self.here());
        self.stack_word(0x8b, RAX, OF_FLAGS);
        starts
    }

    /// Appends the way out of a copy, without the jump: restores the register of the bank and the
    /// stack pointer, after the sum of a path has been stored in the slot.
    pub fn leave(&mut self, bank: BankRegister) -> Left {
        let mut left = Left::default();
        if !bank.is_spilled {
            return left;
        }
        left.plain.push(self.here());
        if bank.follows {
            self.stack_word(0x89, RAX, OF_FLAGS);
            left.others.push(self.here());
            self.stack_word(0x8b, RAX, BANK);
            left.others.push(self.here());
            self.put(&[0x48, 0xf7, 0xd0]); // not rax, which preserves the flags
            left.others.push(self.here());
            let (prefix, modrm) = fields(true, bank.number, 4);
            let base = bank.number >> 3;
            let sib = bank.number & 7;
            self.put(&[prefix | base, 0x8d, 0x40 | modrm, sib, 1]); // lea bank, [bank + rax + 1]
            left.others.push(self.here());
            self.stack_word(0x8b, RAX, SLOT);
            left.others.push(self.here());
            let (prefix, modrm) = fields(true, bank.number, RAX);
            self.put(&[prefix, 0x89, 0x40 | modrm, PathRow::SUM]); // mov [rax + SUM], bank
            left.others.push(self.here());
            self.stack_word(0x8b, RAX, OF_FLAGS);
            left.plain.push(self.here());
        }
        self.stack_word(0x8b, bank.number, OF_BANK);
        left.plain.push(self.here());
        self.raise();
        left
    }

    /// Appends an instruction that was made by [`lowered`].
    pub fn lowered(&mut self, insn: &[u8]) {
        self.put(insn);
    }

    /// Appends bytes that are not executed, up to an address for the copy of a loop at `original`.
    pub fn align_loop(&mut self, original: Avma) {
        let wanted = original.0 % LOOP_ALIGNMENT as u64;
        while self.here().0 % LOOP_ALIGNMENT as u64 != wanted {
            self.put(&[super::patch::BREAKPOINT]);
        }
    }

    /// `lea rsp, [rsp - LOWERED]`, which preserves the flags.
    fn lower(&mut self) {
        self.put(&[0x48, 0x8d, 0xa4, 0x24]);
        self.put(&(LOWERED as u32).wrapping_neg().to_le_bytes());
    }

    /// `lea rsp, [rsp + LOWERED]`.
    fn raise(&mut self) {
        self.put(&[0x48, 0x8d, 0xa4, 0x24]);
        self.put(&(LOWERED as u32).to_le_bytes());
    }

    /// `mov [rsp + at], register` with opcode 0x89, the other direction with 0x8b.
    fn stack_word(&mut self, opcode: u8, register: u8, at: u8) {
        let (prefix, modrm) = fields(true, register, 4);
        self.put(&[prefix, opcode, 0x40 | modrm, 0x24, at]);
    }
}

/// The addresses of the instructions of [`Code::leave`].
#[derive(Clone, Debug, Default)]
pub struct Left {
    /// Those at which all registers but that of the bank have the values of the original code.
    pub plain: Vec<Avma>,
    /// Those at which rax differs as well.
    pub others: Vec<Avma>,
}

/// Copies of loops are at the same place as the loop among so many bytes, a cache line: compilers
/// align loops, and the prediction of branches depends on their addresses.
pub const LOOP_ALIGNMENT: usize = 64;
