//! Signal frames built by hand, as the kernel lays them on the stack.

use std::arch::x86_64::__cpuid_count;

use abi::arch::signal_frame::extended::{self, MAGIC1, MAGIC2};
use patcher::Avma;

use super::Registers;

/// The regset of the extended state (NT_X86_XSTATE, linux/elf.h), in the layout of XSAVE.
pub const EXTENDED_STATE: usize = 0x202;
/// Invalid `ss_flags` for sigaltstack(2). The kernel refuses them, and so leaves the alternate
/// stack unchanged.
pub const NO_STACK: u64 = 0x77;
/// The offset of `ss_flags` in a frame: after the return address, `uc_flags`, `uc_link` and
/// `ss_sp`.
pub const NO_STACK_AT: u64 = 32;

/// Converts the extended state from PTRACE_GETREGSET to the layout of a signal frame, by filling in
/// the software-reserved bytes (arch/x86/include/uapi/asm/sigcontext.h `struct _fpx_sw_bytes`).
///
/// `None` if the thread uses AMX, or if `regset` is too short.
pub fn extended(regset: &[u8]) -> Option<Vec<u8>> {
    const SOFTWARE: usize = extended::SOFTWARE as usize;
    const HEADER: usize = extended::FXSAVE as usize;
    const LEGACY: usize = extended::LEGACY as usize;
    /// AMX, which a thread must request. A thread that uses it is not supported.
    const TILES: u64 = 1 << 17 | 1 << 18;
    let word = |at: usize| {
        let bytes = regset.get(at..at + 8)?.try_into().ok()?;
        Some(u64::from_le_bytes(bytes))
    };
    // The components that the system has enabled, and those not in their initial state.
    let (enabled, used) = (word(SOFTWARE)?, word(HEADER)?);
    if used & TILES != 0 {
        return None;
    }
    let features = enabled & !TILES;
    let component = |number: u32| {
        // CPUID leaf 13: size and offset of a component in the standard form.
        let leaf = __cpuid_count(0xd, number);
        (leaf.ebx + leaf.eax) as usize
    };
    let components = (2..63).filter(|n| features & (1 << n) != 0);
    let size = components.map(component).fold(LEGACY, usize::max);
    let mut state = regset.get(..size)?.to_vec();
    let total = size as u32 + 4;
    let mut software = Vec::new();
    software.extend(MAGIC1.to_le_bytes());
    software.extend(total.to_le_bytes());
    software.extend(features.to_le_bytes());
    software.extend((size as u32).to_le_bytes());
    software.resize(HEADER - SOFTWARE, 0);
    state[SOFTWARE..HEADER].copy_from_slice(&software);
    state.extend(MAGIC2.to_le_bytes());
    Some(state)
}

/// Builds a `struct rt_sigframe` up to its siginfo, with these registers and this signal mask (bit
/// `n - 1` for signal `n`). `restorer` is its return address, and `extended_state` the address of
/// the extended state.
pub fn frame(restorer: Avma, registers: &Registers, mask: u64, extended_state: u64) -> Vec<u8> {
    /// UC_FP_XSTATE, UC_SIGCONTEXT_SS and UC_STRICT_RESTORE_SS.
    const FLAGS: u64 = 7;
    const CS: u64 = 0x33;
    const SS: u64 = 0x2b;
    let mut words = vec![restorer.0, FLAGS, 0, 0, NO_STACK, 0];
    words.extend(registers.in_signal_frame());
    words.push(CS | SS << 48);
    // rt_sigreturn ignores the error code, trap number, old mask and fault address.
    words.extend([0; 4]);
    words.push(extended_state);
    words.extend([0; 8]);
    words.push(mask);
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_frame_is_laid_out_as_the_kernel_reads_it() {
        let mut registers = Registers::zeroed();
        registers.set_pc(0x1111);
        registers.prepare_call(0, [0, 0, 0, 0, 0x2222, 0]);
        let bytes = frame(Avma(0x3333), &registers, 0x4444, 0x5555);
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        // The offsets are from offsetof() on the kernel's structures.
        assert_eq!(word(0), 0x3333);
        assert_eq!(word(NO_STACK_AT as usize), NO_STACK);
        assert_eq!(word(48), 0x2222);
        assert_eq!(word(176), 0x1111);
        assert_eq!(word(232), 0x5555);
        assert_eq!(word(304), 0x4444);
        assert_eq!(bytes.len(), 312);
    }
}
