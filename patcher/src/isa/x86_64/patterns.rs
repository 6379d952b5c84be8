//! Byte patterns of instructions, for code whose instruction boundaries are not known.

use crate::addr::Svma;

/// The length of a call to a fixed address, in bytes.
pub const CALL: u64 = 5;
/// The length of a return that pops arguments, in bytes.
pub const POPPING_RETURN: usize = 3;
/// The maximum distance of a short branch's target from the branch's first byte, in bytes.
pub const SHORT_REACH: u64 = 129;
/// The length of a branch with an 8-bit displacement, in bytes.
pub const SHORT_BRANCH: u64 = 2;

/// True if `code` may contain a call: it has a byte that is the first opcode byte of a call.
pub fn may_have_calls(code: &[u8]) -> bool {
    code.iter().any(|byte| matches!(byte, 0xe8 | 0xff))
}

/// The offsets of possible functions that set up a frame pointer at once, in descending order.
///
/// The pattern is `push rbp; mov rbp, rsp`, in both encodings.
pub fn beginnings_with_frame_pointer(code: &[u8]) -> impl Iterator<Item = usize> {
    const BEGINNINGS: [[u8; 4]; 2] = [[0x55, 0x48, 0x89, 0xe5], [0x55, 0x48, 0x8b, 0xec]];
    let found = code.windows(4).enumerate().rev();
    let found = found.filter(|(_, bytes)| BEGINNINGS.iter().any(|b| b == bytes));
    found.map(|(offset, _)| offset)
}

/// True if the bytes are a return that pops 1 to 31 words of arguments: `ret n`.
pub fn is_popping_return(code: &[u8]) -> bool {
    matches!(*code, [0xc2, low, 0] if low != 0 && low % 8 == 0)
}

/// True if `byte`, found before a return, is an instruction that restores the frame pointer:
/// `leave` or `pop rbp`.
pub fn restores_frame_pointer(byte: u8) -> bool {
    matches!(byte, 0xc9 | 0x5d)
}

/// The target of the bytes at `at`, if they are a short branch; otherwise `None`.
pub fn short_target(at: u64, bytes: &[u8; SHORT_BRANCH as usize]) -> Option<u64> {
    let &[opcode, displacement] = bytes;
    let is_branch = matches!(opcode, 0x70..=0x7f | 0xe0..=0xe3 | 0xeb);
    let next = at.wrapping_add(SHORT_BRANCH);
    is_branch.then(|| next.wrapping_add(i64::from(displacement as i8) as u64))
}

/// The address of the first instruction of the function part at `start`. `bytes` is its first byte,
/// if the file has it.
///
/// GCC puts a no-op before a part that is a landing pad, because a landing pad at offset 0 would
/// mean none. The unwind rules begin after the no-op.
pub fn after_leading_no_op(start: Svma, bytes: Option<&[u8]>) -> Svma {
    if let Some([0x90]) = bytes {
        start.plus(1)
    } else {
        start
    }
}

/// The number of filler bytes from Go's linker at the end of `code`; at most `most`.
pub fn fill_of_go(code: &[u8], most: usize) -> usize {
    let from_end = code.iter().rev().take(most);
    from_end.take_while(|&&byte| byte == 0xcc).count()
}
