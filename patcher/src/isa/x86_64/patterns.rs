//! What bytes look like an instruction, for code of which it is not known where instructions begin.

use crate::addr::Svma;

/// Bytes of a call of a fixed address.
pub const CALL: u64 = 5;
/// Bytes of a return that takes arguments off the stack.
pub const POPPING_RETURN: usize = 3;
/// A branch with a short displacement lands at most so many bytes before its own first byte or after it.
pub const SHORT_REACH: u64 = 129;
/// Bytes of a branch with a short displacement.
pub const SHORT_BRANCH: u64 = 2;

/// May there be a call among the instructions? First bytes of opcodes of calls stand there.
pub fn may_have_calls(code: &[u8]) -> bool {
    code.iter().any(|byte| matches!(byte, 0xe8 | 0xff))
}

/// The offsets at which a function may begin that makes a frame pointer at once, the last first:
/// `push rbp; mov rbp, rsp`, in both ways to write that.
pub fn beginnings_with_frame_pointer(code: &[u8]) -> impl Iterator<Item = usize> {
    const BEGINNINGS: [[u8; 4]; 2] = [[0x55, 0x48, 0x89, 0xe5], [0x55, 0x48, 0x8b, 0xec]];
    let found = code.windows(4).enumerate().rev();
    let found = found.filter(|(_, bytes)| BEGINNINGS.iter().any(|b| b == bytes));
    found.map(|(offset, _)| offset)
}

/// Are the bytes a return that takes 1 to 31 words off the stack: `ret n`?
pub fn is_popping_return(code: &[u8]) -> bool {
    matches!(*code, [0xc2, low, 0] if low != 0 && low % 8 == 0)
}

/// Is the byte before a return the instruction that restores the frame pointer: `leave` or `pop rbp`?
pub fn restores_frame_pointer(byte: u8) -> bool {
    matches!(byte, 0xc9 | 0x5d)
}

/// Where the bytes at `at` jump to, if they are a branch with a short displacement.
pub fn short_target(at: u64, bytes: &[u8; SHORT_BRANCH as usize]) -> Option<u64> {
    let &[opcode, displacement] = bytes;
    let is_branch = matches!(opcode, 0x70..=0x7f | 0xe0..=0xe3 | 0xeb);
    let next = at.wrapping_add(SHORT_BRANCH);
    is_branch.then(|| next.wrapping_add(i64::from(displacement as i8) as u64))
}

/// The first instruction of a part of a function. GCC puts a no-op before a part that is a landing pad, because a
/// landing pad at offset 0 would mean none. The unwind rules begin after it.
pub fn after_leading_no_op(start: Svma, bytes: Option<&[u8]>) -> Svma {
    if let Some([0x90]) = bytes {
        start.plus(1)
    } else {
        start
    }
}

/// How many bytes at the end of `code` Go's linker has filled up with, looking at no more than `most`.
pub fn fill_of_go(code: &[u8], most: usize) -> usize {
    let from_end = code.iter().rev().take(most);
    from_end.take_while(|&&byte| byte == 0xcc).count()
}
