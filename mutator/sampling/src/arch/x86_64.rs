//! The registers of a thread in user mode.

use framehop::x86_64::{Reg, UnwindRegsX86_64};

/// How many are sampled: the general ones and the instruction pointer.
pub(super) const REGISTERS: usize = 17;

/// Their bits in `sample_regs_user`: AX to IP are 0 to 8, R8 to R15 are 16 to 23
/// (arch/x86/include/uapi/asm/perf_regs.h). They come in this order.
pub(super) const MASK: u64 = 0x1ff | 0xff << 16;

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
const IP: usize = 8;
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

/// What an unwinder needs of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Registers(pub(super) UnwindRegsX86_64);

impl Registers {
    /// Those of a sample.
    pub(super) fn of(words: &[u64; REGISTERS]) -> Self {
        let mut all = UnwindRegsX86_64::new(words[IP], 0, 0);
        let low = ORDER.iter().zip(words);
        let high = HIGH.iter().zip(&words[IP + 1..]);
        for (&register, &word) in low.chain(high) {
            all.set(register, word);
        }
        Self(all)
    }

    /// Those of a thread in ptrace-stop.
    pub(super) fn of_stopped(all: &libc::user_regs_struct) -> Self {
        Self::of(&[
            all.rax, all.rbx, all.rcx, all.rdx, all.rsi, all.rdi, all.rbp, all.rsp, all.rip,
            all.r8, all.r9, all.r10, all.r11, all.r12, all.r13, all.r14, all.r15,
        ])
    }

    /// Of a thread of which no more is known than these.
    pub(super) fn bare(ip: u64, sp: u64) -> Self {
        /// No frame is there. A frame pointer of 0 would mean the root.
        const UNKNOWN: u64 = 1;
        Self(UnwindRegsX86_64::new(ip, sp, UNKNOWN))
    }

    pub(super) fn ip(&self) -> u64 {
        self.0.ip()
    }

    pub(super) fn sp(&self) -> u64 {
        self.0.sp()
    }

    #[cfg(test)]
    pub(super) fn bp(&self) -> u64 {
        self.0.bp()
    }
}
