//! Copies of code that keep the bank of the thread in a register, as `abi::count` lays it out.
//!
//! If the register is not free, its value is on the stack while the copy runs, below the red zone.
//! The stack pointer is then lower than in the original code by [`LOWERED`] bytes:
//!
//! ```text
//! rsp + 24    the red zone of the original code
//! rsp + 16    the register for the thread pointer, while the bank is looked up
//! rsp + 8     rax, while it holds the flags
//! rsp         the register for the bank
//! ```

use iced_x86::{Encoder, InstructionInfoFactory, OpKind, Register};

use super::code::{Code, Goal};
use super::count::{RAX, SCRATCH, fields};
use super::insn::Insn;
use super::patch::CodeError;
use super::uses::Registers;
use crate::addr::Avma;

/// The register with the address of the bank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BankRegister {
    number: u8,
    is_spilled: bool,
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
pub const ENTER: usize = 192;
/// The maximum length of [`Code::count_in`], in bytes.
pub const COUNT_IN: usize = 32;
/// The maximum length of [`Code::leave`], in bytes.
pub const LEAVE: usize = 16;
/// Bytes by which an instruction grows at most if its operand is relative to a lower stack pointer.
pub const GROWS: usize = 4;

const OF_BANK: u8 = 0;
const OF_FLAGS: u8 = 8;
const OF_THREAD: u8 = 16;

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
            });
        }
        if !insns.iter().all(may_be_lowered) {
            return None;
        }
        let number = usable.next()?;
        Some(Self {
            number,
            is_spilled: true,
        })
    }

    /// The number of the register, as encoded in instructions.
    pub fn number(self) -> u8 {
        self.number
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
    /// Appends the way into a copy. If the thread owns a bank, control continues at `inside`, with
    /// the bank in its register. Otherwise it continues after this code, with all registers and
    /// flags as before.
    ///
    /// It preserves all registers but that of the bank and those in `free`, and the flags unless
    /// `are_free`. `table` is the cell with the address of the table of banks. Fails if it is out
    /// of reach.
    pub fn enter(
        &mut self,
        bank: BankRegister,
        (Registers(free), are_free): (Registers, bool),
        table: Avma,
        inside: usize,
    ) -> Result<(), CodeError> {
        let is_free = |register: u8| free & 1 << register != 0;
        let saves_flags = !are_free;
        let usable = |&r: &u8| r != bank.number && !(saves_flags && r == RAX);
        let mut usable = SCRATCH.into_iter().filter(usable);
        let thread = usable.clone().find(|&r| is_free(r)).or(usable.next());
        let thread = thread.expect("a dozen registers are left");
        let saved = [
            (bank.number, OF_BANK, bank.is_spilled),
            (thread, OF_THREAD, !is_free(thread)),
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
    /// stack pointer. Returns the addresses of its instructions.
    pub fn leave(&mut self, bank: BankRegister) -> Vec<Avma> {
        if !bank.is_spilled {
            return Vec::new();
        }
        let first = self.here();
        self.stack_word(0x8b, bank.number, OF_BANK);
        let second = self.here();
        self.raise();
        vec![first, second]
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

/// Copies of loops are at the same place as the loop among so many bytes, a cache line: compilers
/// align loops, and the prediction of branches depends on their addresses.
pub const LOOP_ALIGNMENT: usize = 64;
