//! What is written over the bytes of a site.
//!
//! ```text
//! window:      jmp trampoline          trampoline: push rax            the hook, before each
//!              (int3 up to its end)                mov  eax, id        probe point
//! resume:      ...                                 call [rip + cell]
//!                                                  pop  rax
//!                                                  displaced instructions
//!                                                  jmp  resume
//! ```
//!
//! A punned jump leads to a stepping stone first, at one of the few addresses that it can name:
//!
//! ```text
//! window:      jmp stone ────► stone:  jmp [rip + 0] ────► trampoline
//! ```
//!
//! At any instruction but the ends of activations a hook keeps clear of the red zone (psABI 3.2.2):
//!
//! ```text
//! lea rsp, [rsp - 128]; push rax; mov eax, number; call [rip + cell]; pop rax; lea rsp, [rsp + 128]
//! ```

use crate::addr::Avma;

/// Why code cannot be at the address given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeError {
    /// An instruction at `from` cannot reach `to`.
    OutOfReach {
        /// Where the displacement counts from.
        from: Avma,
        /// What it should name.
        to: Avma,
    },
    /// The instruction at `at` has an operand too far away and no other form.
    NoFarForm {
        /// The instruction's original address.
        at: Avma,
    },
}

/// Bytes of a jump with a 32-bit displacement.
pub const JUMP: u64 = 5;
/// Bytes of a jump with an 8-bit displacement.
pub const SHORT_JUMP: u64 = 2;
/// Bytes of a jump to any address: `jmp [rip + 0]` and the address after it.
pub const STONE: u64 = 14;
/// A breakpoint: what a trap is, and what a window is filled up with.
pub const BREAKPOINT: u8 = 0xcc;

/// `jmp rel32`.
const OPCODE: u8 = 0xe9;

/// The displacement that leads from `next`, the end of an instruction, to `to`.
pub(super) fn rel32(next: Avma, to: Avma) -> Result<[u8; 4], CodeError> {
    i32::try_from(to.0.wrapping_sub(next.0) as i64)
        .map(i32::to_le_bytes)
        .map_err(|_| CodeError::OutOfReach { from: next, to })
}

/// The jump at `at` to `to`.
pub fn jump(at: Avma, to: Avma) -> Result<Vec<u8>, CodeError> {
    let mut bytes = vec![OPCODE];
    bytes.extend(rel32(at.plus(JUMP), to)?);
    Ok(bytes)
}

/// The short jump at `at` to `to`.
pub fn short_jump(at: Avma, to: Avma) -> Result<[u8; SHORT_JUMP as usize], CodeError> {
    let from = at.plus(SHORT_JUMP);
    let short = to.0.wrapping_sub(from.0) as i64;
    let short = i8::try_from(short).map_err(|_| CodeError::OutOfReach { from, to })?;
    Ok([0xeb, short as u8])
}

/// The first bytes of the jump at `at` to `to` that ends with `kept`; `None` where that is another jump.
pub fn punned_jump(at: Avma, to: Avma, kept: &[u8]) -> Result<Option<Vec<u8>>, CodeError> {
    let mut bytes = jump(at, to)?;
    let is_it = bytes[1..].ends_with(kept);
    bytes.truncate(bytes.len() - kept.len());
    Ok(is_it.then_some(bytes))
}

/// The last bytes of `branch` at `at`, and their offset, so that it leads to `to`: its displacement.
pub fn retargeted(branch: &[u8], at: Avma, to: Avma) -> Result<(usize, Vec<u8>), CodeError> {
    let field = rel32(at.plus(branch.len() as u64), to)?;
    Ok((branch.len() - field.len(), field.to_vec()))
}

/// The stepping stone to `to`.
pub fn stone(to: Avma) -> Vec<u8> {
    let mut bytes = vec![0xff, 0x25, 0, 0, 0, 0];
    bytes.extend(to.0.to_le_bytes());
    bytes
}
