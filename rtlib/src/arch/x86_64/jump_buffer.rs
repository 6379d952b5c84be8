//! `jmp_buf` (musl's src/setjmp/x86_64, glibc's sysdeps/x86_64/__longjmp.S).

use unwind::Saved;

use super::thread_pointer::pointer_guard;

/// The target of a longjmp.
pub struct Target {
    /// The program counter.
    pub pc: u64,
    /// The stack pointer.
    pub sp: u64,
    /// Callee-saved registers.
    pub saved: Saved,
}

/// Left rotation of the words that glibc mangles.
const ROTATION: u32 = 0x11;

/// The possible targets, by the layouts of musl and glibc, in this order. Only that of the
/// program's own C library is right. Both layouts are rbx, rbp, r12 to r15, rsp, pc. glibc stores
/// rbp, rsp and pc xored with the pointer guard and rotated.
///
/// # Safety
/// `buffer` is the argument of longjmp, which is about to read it.
pub unsafe fn targets(buffer: u64) -> [Target; 2] {
    // SAFETY: guaranteed by the caller.
    let words = unsafe { (buffer as *const [u64; 8]).read_unaligned() };
    let [rbx, rbp, r12, r13, r14, r15, rsp, pc] = words;
    [(0, 0), (ROTATION, pointer_guard())].map(|(rotation, guard)| {
        let decode = |word: u64| word.rotate_right(rotation) ^ guard;
        Target {
            pc: decode(pc),
            sp: decode(rsp),
            saved: Saved {
                fp: decode(rbp),
                others: [rbx, r12, r13, r14, r15],
            },
        }
    })
}
