//! x86-64.

use framehop::x86_64::Reg;
pub use framehop::x86_64::{
    CacheX86_64 as Cache, UnwindRegsX86_64 as UnwindRegs, UnwinderX86_64 as Unwinder,
};
use ipath_target::arch::Registers as AllRegisters;

/// The number of sampled registers: the general ones and the instruction pointer.
pub const REGISTERS: usize = 17;

/// The bits of the sampled registers in `sample_regs_user`: AX to IP are 0 to 8, R8 to R15 are 16
/// to 23 (arch/x86/include/uapi/asm/perf_regs.h). They come in this order.
pub const MASK: u64 = 0x1ff | 0xff << 16;

/// The registers before the instruction pointer, in the order of a sample.
const ORDER: [Reg; 8] = [
    Reg::RAX,
    Reg::RBX,
    Reg::RCX,
    Reg::RDX,
    Reg::RSI,
    Reg::RDI,
    Reg::RBP,
    Reg::RSP,
];
/// The index of the instruction pointer in a sample.
const IP: usize = 8;
/// The registers after the instruction pointer, in the order of a sample.
const HIGH: [Reg; 8] = [
    Reg::R8,
    Reg::R9,
    Reg::R10,
    Reg::R11,
    Reg::R12,
    Reg::R13,
    Reg::R14,
    Reg::R15,
];

/// The registers that an unwinder needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers(pub UnwindRegs);

impl Registers {
    /// The registers of a sample, whose words are in the order of [`MASK`].
    pub fn of(words: &[u64; REGISTERS]) -> Self {
        let mut all = UnwindRegs::new(words[IP], 0, 0);
        let low = ORDER.iter().zip(words);
        let high = HIGH.iter().zip(&words[IP + 1..]);
        for (&register, &word) in low.chain(high) {
            all.set(register, word);
        }
        Self(all)
    }

    /// The registers of a thread in ptrace-stop.
    pub fn of_stopped(all: &AllRegisters) -> Self {
        Self::of(&all.as_sampled())
    }

    /// The registers of a thread of which only the program counter and the stack pointer are known.
    pub fn bare(pc: u64, sp: u64) -> Self {
        /// An address without a frame. A frame pointer of 0 would mean the root.
        const UNKNOWN: u64 = 1;
        Self(UnwindRegs::new(pc, sp, UNKNOWN))
    }

    /// The program counter.
    pub fn pc(&self) -> u64 {
        self.0.ip()
    }

    /// The stack pointer.
    pub fn sp(&self) -> u64 {
        self.0.sp()
    }

    /// The frame pointer.
    #[cfg(test)]
    pub fn fp(&self) -> u64 {
        self.0.bp()
    }
}

/// The frame pointer in an unwinder's registers.
pub fn frame_pointer(registers: &UnwindRegs) -> u64 {
    registers.bp()
}

/// Sets the stack pointer and the frame pointer to those of the caller. The instruction pointer
/// stays.
pub fn go_to_caller(registers: &mut UnwindRegs, sp: u64, fp: u64) {
    registers.set_bp(fp);
    registers.set_sp(sp);
}
