//! Encodings of the bytes that overwrite a site.
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
//! A punned jump leads to a stepping stone first, at one of the few addresses that it can encode:
//!
//! ```text
//! window:      jmp stone ────► stone:  jmp [rip + 0] ────► trampoline
//! ```
//!
//! Except at the ends of activations, a hook skips the red zone (psABI 3.2.2):
//!
//! ```text
//! lea rsp, [rsp - 128]
//! push rax; mov eax, number; call [rip + cell]; pop rax
//! lea rsp, [rsp + 128]
//! ```

use crate::addr::Avma;

/// Reasons why code cannot be encoded at the given address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeError {
    /// The displacement of an instruction that ends at `from` cannot reach `to`.
    OutOfReach {
        /// The address that the displacement is relative to.
        from: Avma,
        /// The address that the displacement should reach.
        to: Avma,
    },
    /// The instruction at `at` has an operand that is too far away, and no other form.
    NoFarForm {
        /// The instruction's original address.
        at: Avma,
    },
}

/// The length of a jump with a 32-bit displacement, in bytes.
pub const JUMP: u64 = 5;
/// The length of a jump with an 8-bit displacement, in bytes.
pub const SHORT_JUMP: u64 = 2;
/// The length of a jump to any address, in bytes: `jmp [rip + 0]` and the address after it.
pub const STONE: u64 = 14;
/// A breakpoint (`int3`): the patch of a trap site, and the filler of a window.
pub const BREAKPOINT: u8 = 0xcc;

/// `jmp rel32`.
const OPCODE: u8 = 0xe9;

/// The displacement from `next`, the end of an instruction, to `to`. The error is
/// [`CodeError::OutOfReach`].
pub(super) fn rel32(next: Avma, to: Avma) -> Result<[u8; 4], CodeError> {
    i32::try_from(to.0.wrapping_sub(next.0) as i64)
        .map(i32::to_le_bytes)
        .map_err(|_| CodeError::OutOfReach { from: next, to })
}

/// The bytes of a near jump at `at` to `to`. The error is [`CodeError::OutOfReach`].
pub fn jump(at: Avma, to: Avma) -> Result<Vec<u8>, CodeError> {
    let mut bytes = vec![OPCODE];
    bytes.extend(rel32(at.plus(JUMP), to)?);
    Ok(bytes)
}

/// The bytes of a short jump at `at` to `to`. The error is [`CodeError::OutOfReach`].
pub fn short_jump(at: Avma, to: Avma) -> Result<[u8; SHORT_JUMP as usize], CodeError> {
    let from = at.plus(SHORT_JUMP);
    let short = to.0.wrapping_sub(from.0) as i64;
    let short = i8::try_from(short).map_err(|_| CodeError::OutOfReach { from, to })?;
    Ok([0xeb, short as u8])
}

/// The first bytes of a jump at `at` to `to` whose last bytes are `kept`. `None` if the jump would
/// end differently. The error is [`CodeError::OutOfReach`].
pub fn punned_jump(at: Avma, to: Avma, kept: &[u8]) -> Result<Option<Vec<u8>>, CodeError> {
    let mut bytes = jump(at, to)?;
    let is_it = bytes[1..].ends_with(kept);
    bytes.truncate(bytes.len() - kept.len());
    Ok(is_it.then_some(bytes))
}

/// The new displacement with which `branch`, located at `at`, leads to `to`. Returns its offset in
/// the instruction and its bytes. The error is [`CodeError::OutOfReach`].
pub fn retargeted(branch: &[u8], at: Avma, to: Avma) -> Result<(usize, Vec<u8>), CodeError> {
    let field = rel32(at.plus(branch.len() as u64), to)?;
    Ok((branch.len() - field.len(), field.to_vec()))
}

/// A stepping stone to `to`.
pub fn stone(to: Avma) -> Vec<u8> {
    let mut bytes = vec![0xff, 0x25, 0, 0, 0, 0];
    bytes.extend(to.0.to_le_bytes());
    bytes
}
