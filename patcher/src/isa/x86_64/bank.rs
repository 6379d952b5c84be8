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
//!
//! A copy of a whole function leaves the stack pointer as it is. Its words are in the red zone,
//! below the canonical frame address (CFA) of the function, which has a small frame:
//!
//! ```text
//! CFA - 96     the lowest byte that the function may use
//! CFA - 104    a register for the slot, while it is looked up
//! CFA - 112    the register for the thread pointer, while the bank is looked up
//! CFA - 120    rax, while it holds the flags
//! CFA - 128    the bank, if a path is followed
//! CFA - 136    the register for the bank: the end of the red zone at the entry
//! ```

use iced_x86::{Encoder, InstructionInfoFactory, OpKind, Register};

use super::code::{Code, Goal};
use super::count::fields;
use super::insn::Insn;
use super::late::{RAX, SCRATCH};
use super::patch::CodeError;
use super::path_row::{PathKey, PathRow, immediate};
use super::uses::Registers;
use crate::addr::Avma;

/// The register with the address of the bank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BankRegister {
    number: u8,
    home: Home,
    /// True if the register follows the path.
    follows: bool,
}

/// Where the value of the register is while a copy runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Home {
    /// Nowhere: the register is free.
    None,
    /// At the stack pointer, which is lower.
    Lowered,
    /// Below the frame.
    BelowFrame,
}

/// A place in a copy: the distance from the stack pointer of the original code to the canonical
/// frame address, in bytes. Only copies of whole functions need it.
pub type Height = i32;

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
pub const ENTER: usize = 368;
/// The maximum length of [`Code::count_in`], in bytes.
pub const COUNT_IN: usize = 32;
/// The maximum length of [`Code::leave`], in bytes.
pub const LEAVE: usize = 56;
/// The maximum length of [`Code::reload`] and of [`Code::advance`], in bytes.
pub const ADVANCE: usize = 8;
/// Bytes by which an instruction grows at most if its operand is relative to a lower stack pointer.
pub const GROWS: usize = 4;

/// The lowest byte that the function of a copy of it as a whole may use, from the canonical frame
/// address.
pub const WORDS_BELOW: i32 = -96;

/// A word of a copy: its distance from the lower stack pointer, and that from the canonical frame
/// address.
#[derive(Clone, Copy)]
struct Word {
    lowered: i32,
    below_frame: i32,
}

const fn word(lowered: i32, below_frame: i32) -> Word {
    Word {
        lowered,
        below_frame,
    }
}

const OF_BANK: Word = word(0, -136);
const OF_FLAGS: Word = word(8, -120);
const OF_THREAD: Word = word(16, -112);
const OF_SLOT: Word = word(32, -104);
const BANK: Word = word(24, -128);
const SLOT: Word = word(40, 0);

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
                home: Home::None,
                follows: false,
            });
        }
        if !insns.iter().all(may_be_lowered) {
            return None;
        }
        let number = usable.next()?;
        Some(Self {
            number,
            home: Home::Lowered,
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
            home: Home::Lowered,
            follows: true,
        })
    }

    /// A register for a copy of the function that consists of `insns`. `None` if they use all
    /// registers.
    pub fn for_function(insns: &[Insn], follows: bool) -> Option<Self> {
        let used = used_by(insns);
        let is_usable = |&number: &u8| used & 1 << number == 0 && number != RAX;
        let number = SCRATCH.into_iter().find(is_usable)?;
        Some(Self {
            number,
            home: Home::BelowFrame,
            follows,
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
        self.home != Home::None
    }

    /// True if the stack pointer is lower in a copy.
    pub fn is_lowered(self) -> bool {
        self.home == Home::Lowered
    }

    /// True for a copy of a whole function.
    pub fn is_of_function(self) -> bool {
        self.home == Home::BelowFrame
    }

    /// The distance from the stack pointer to the register's value at a place in the copy, in
    /// bytes.
    pub fn saved_at(self, height: Height) -> i32 {
        self.at(OF_BANK, height)
    }

    fn at(self, word: Word, height: Height) -> i32 {
        match self.home {
            Home::BelowFrame => height + word.below_frame,
            Home::None | Home::Lowered => word.lowered,
        }
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
        (bank, height): (BankRegister, Height),
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
            (bank.number, OF_BANK, bank.is_spilled()),
            (thread, OF_THREAD, !is_free(thread)),
            (slot, OF_SLOT, path.is_some() && !is_free(slot)),
            (RAX, OF_FLAGS, saves_flags),
        ];
        let saved =
            saved.map(|(register, word, is_saved)| (register, bank.at(word, height), is_saved));
        let is_lower = !bank.is_of_function() && saved.iter().any(|&(_, _, is_saved)| is_saved);
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
        if bank.follows {
            self.stack_word(0x89, bank.number, bank.at(BANK, height));
        }
        if let Some(path) = path {
            self.take_path((bank, height), (thread, slot), &path, failed)?;
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
            if is_lower && !(is_found && bank.is_spilled()) {
                self.raise();
            }
            if is_found {
                self.jump(Goal::Label(inside));
            }
        }
        Ok(())
    }

    /// Appends code that adds the sum of the path to the register of the bank, and saves the slot
    /// if the way out needs it. It jumps to the label `failed` if the sum is not known.
    fn take_path(
        &mut self,
        (bank, height): (BankRegister, Height),
        (sum, slot): (u8, u8),
        path: &PathEntry,
        failed: usize,
    ) -> Result<(), CodeError> {
        let lowered = if bank.is_of_function() {
            0
        } else {
            LOWERED as i32
        };
        self.find_slot(&path.key, (sum, slot), (lowered, path.slots), failed)?;
        // A copy of a whole function never needs the slot again.
        if !bank.is_of_function() {
            self.stack_word(0x89, slot, bank.at(SLOT, height));
        }
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
    pub fn reload(&mut self, bank: BankRegister, height: Height) {
        self.stack_word(0x8b, bank.number, bank.at(BANK, height));
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
    pub fn count_in(
        &mut self,
        (bank, height): (BankRegister, Height),
        number: u32,
        are_free: bool,
    ) -> Vec<Avma> {
        if are_free {
            self.increment(bank.number, number);
            return Vec::new();
        }
        let of_flags = bank.at(OF_FLAGS, height);
        self.stack_word(0x89, RAX, of_flags);
        let mut starts = self.flags_to_rax().to_vec();
        starts.push(self.here());
        self.increment(bank.number, number);
        starts.extend(self.flags_from_rax());
        starts.push(self.here());
        self.stack_word(0x8b, RAX, of_flags);
        starts
    }

    /// Appends the way out of a copy, without the jump: restores the register of the bank and the
    /// stack pointer, after the sum of a path has been stored in the slot.
    ///
    /// A copy of a whole function is left where no path goes on, so there is no sum to store.
    pub fn leave(&mut self, bank: BankRegister, height: Height) -> Left {
        let mut left = Left::default();
        if !bank.is_spilled() {
            return left;
        }
        let at = |word| bank.at(word, height);
        left.plain.push(self.here());
        if bank.is_of_function() {
            self.stack_word(0x8b, bank.number, at(OF_BANK));
            return left;
        }
        if bank.follows {
            self.stack_word(0x89, RAX, at(OF_FLAGS));
            left.others.push(self.here());
            self.stack_word(0x8b, RAX, at(BANK));
            left.others.push(self.here());
            self.put(&[0x48, 0xf7, 0xd0]); // not rax, which preserves the flags
            left.others.push(self.here());
            let (prefix, modrm) = fields(true, bank.number, 4);
            let base = bank.number >> 3;
            let sib = bank.number & 7;
            self.put(&[prefix | base, 0x8d, 0x40 | modrm, sib, 1]); // lea bank, [bank + rax + 1]
            left.others.push(self.here());
            self.stack_word(0x8b, RAX, at(SLOT));
            left.others.push(self.here());
            let (prefix, modrm) = fields(true, bank.number, RAX);
            self.put(&[prefix, 0x89, 0x40 | modrm, PathRow::SUM]); // mov [rax + SUM], bank
            left.others.push(self.here());
            self.stack_word(0x8b, RAX, at(OF_FLAGS));
            left.plain.push(self.here());
        }
        self.stack_word(0x8b, bank.number, at(OF_BANK));
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

    /// `mov [rsp + at], register` with opcode 0x89, the other direction with 0x8b. All words are
    /// within 128 bytes of the stack pointer.
    fn stack_word(&mut self, opcode: u8, register: u8, at: i32) {
        let (prefix, modrm) = fields(true, register, 4);
        self.put(&[prefix, opcode, 0x40 | modrm, 0x24, at as u8]);
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
