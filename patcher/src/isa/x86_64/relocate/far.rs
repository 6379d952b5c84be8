//! Rip-relative operands beyond the reach of a 32-bit displacement.

use abi::arch::stack::RED_ZONE;
use iced_x86::{
    Encoder, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpKind, Register,
};

use crate::addr::Avma;

/// The replacement for an instruction whose rip-relative operand is out of reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct FarAccess {
    /// The number of the register that takes the address, as in `mov scratch, imm64`.
    scratch: u8,
    /// The instruction with `[scratch]` as its operand. Empty for `lea scratch, [rip + x]`, which
    /// is replaced by the move of the address.
    through: Vec<u8>,
}

/// Registers that can hold the address.
///
/// These exclude `rsp`, and `rbp` and `r13`, which cannot be a base without a displacement.
/// Registers that need no REX prefix come first, because `ah` to `dh` cannot be encoded with one.
const SCRATCH: [Register; 13] = [
    Register::RAX,
    Register::RCX,
    Register::RDX,
    Register::RSI,
    Register::RDI,
    Register::RBX,
    Register::R8,
    Register::R9,
    Register::R10,
    Register::R11,
    Register::R12,
    Register::R14,
    Register::R15,
];

/// `lea rsp, [rsp - RED_ZONE]`: skips the red zone and preserves the flags.
pub const SKIP_RED_ZONE: [u8; 5] = [0x48, 0x8d, 0x64, 0x24, (RED_ZONE as u8).wrapping_neg()];
/// `lea rsp, [rsp + RED_ZONE]`.
pub const BACK_OVER_RED_ZONE: [u8; 8] = [0x48, 0x8d, 0xa4, 0x24, RED_ZONE as u8, 0, 0, 0];
const _: () = assert!(RED_ZONE <= 128);

impl FarAccess {
    /// The replacement for `insn`. `None` if it uses the stack pointer, transfers control, or
    /// leaves no register to borrow.
    pub fn of(insn: &Instruction) -> Option<Self> {
        if insn.flow_control() != FlowControl::Next {
            return None;
        }
        if insn.mnemonic() == Mnemonic::Lea {
            let register = insn.op0_register();
            let scratch = (register.size() == 8 && register != Register::RSP)
                .then(|| register.number() as u8)?;
            return Some(Self {
                scratch,
                through: Vec::new(),
            });
        }
        let mut factory = InstructionInfoFactory::new();
        let info = factory.info(insn);
        let uses = |register: Register| {
            info.used_registers()
                .iter()
                .any(|used| used.register().full_register() == register)
        };
        if uses(Register::RSP) {
            return None;
        }
        SCRATCH
            .into_iter()
            .filter(|&scratch| !uses(scratch))
            .find_map(|scratch| {
                let mut through = *insn;
                through.set_memory_base(scratch);
                through.set_memory_displacement64(0);
                through.set_memory_displ_size(0);
                debug_assert!((0..insn.op_count()).any(|op| insn.op_kind(op) == OpKind::Memory));
                let mut encoder = Encoder::new(64);
                encoder.encode(&through, insn.ip()).ok()?;
                Some(Self {
                    scratch: scratch.number() as u8,
                    through: encoder.take_buffer(),
                })
            })
    }

    /// An upper bound of the length of the encoding, in bytes.
    pub fn max_len(&self) -> usize {
        match self.through.len() {
            0 => 10,
            through => SKIP_RED_ZONE.len() + 2 + 10 + through + 2 + BACK_OVER_RED_ZONE.len(),
        }
    }

    /// Appends the code that accesses `target`.
    pub fn encode(&self, target: Avma, out: &mut Vec<u8>) {
        let (extended, low) = (self.scratch >> 3, self.scratch & 7);
        let stack = |opcode: u8, out: &mut Vec<u8>| {
            if extended == 1 {
                out.push(0x41);
            }
            out.push(opcode | low);
        };
        let borrow = !self.through.is_empty();
        if borrow {
            out.extend(SKIP_RED_ZONE);
            stack(0x50, out);
        }
        // mov scratch, imm64
        out.extend([0x48 | extended, 0xb8 | low]);
        out.extend(target.0.to_le_bytes());
        if borrow {
            out.extend(&self.through);
            stack(0x58, out);
            out.extend(BACK_OVER_RED_ZONE);
        }
    }
}
