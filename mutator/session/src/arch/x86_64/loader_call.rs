//! The system call that replaces the loader's notification function while a program is loaded.
//!
//! The alternatives would kill the program if its tracer is killed:
//! * A breakpoint raises SIGTRAP.
//! * A hardware breakpoint outlives its tracer: `exit_ptrace` (kernel/ptrace.c) calls
//!   `__ptrace_unlink` but not `ptrace_disable`, and arch/x86/kernel/ptrace.c releases debug
//!   registers only at the thread's end or exec.
//! * A single step outlives it for the same reason (TIF_SINGLESTEP stays set).
//!
//! A system call stops only a traced thread. An existing call of the loader does not suffice: after
//! the notification the loader unmaps its cache, or makes no call at all before the program's own
//! code runs (elf/rtld.c, `_dl_unload_cache`).

/// `mprotect(_, 0, 0)`, which changes nothing for any first argument. The loader has already called
/// mprotect, so a seccomp filter that forbids it would have ended the program. The code may change
/// every register that a call may change: the function has no arguments and no result.
///
/// ```text
/// xor esi, esi; xor edx, edx; mov eax, 10; syscall; ret
/// ```
pub const CODE: [u8; 12] = [0x31, 0xf6, 0x31, 0xd2, 0xb8, 10, 0, 0, 0, 0x0f, 0x05, 0xc3];
/// Bytes from the start of the code to the instruction after `syscall`.
pub const RETURN: usize = 11;
/// The number of bytes that [`place`] inspects: the notification function and the padding after it.
pub const ROOM: usize = 32;

const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
const RET: u8 = 0xc3;

/// The number of leading bytes of the notification function to keep before [`CODE`], or `None` if
/// there is no room. `there` begins with the function, which must be a plain return, followed by
/// no-ops that align the next function.
pub fn place(there: &[u8; ROOM]) -> Option<usize> {
    let skipped = if there.starts_with(&ENDBR64) {
        ENDBR64.len()
    } else {
        0
    };
    let end = skipped + CODE.len();
    let mut at = skipped + 1;
    while there[skipped] == RET && at < end {
        at += no_op(&there[at..])?;
    }
    (at >= end).then_some(skipped)
}

/// The length of the no-op or breakpoint at the start of `code`, as used for padding by assemblers
/// (Intel SDM, NOP). `None` if `code` begins with another instruction.
fn no_op(code: &[u8]) -> Option<usize> {
    let prefixes = code
        .iter()
        .take_while(|b| [0x66, 0x2e].contains(*b))
        .count();
    match code[prefixes..] {
        [0x90, ..] => Some(prefixes + 1),
        [0xcc, ..] if prefixes == 0 => Some(1),
        [0x0f, 0x1f, modrm, ..] => {
            let (mode, rm) = (modrm >> 6, modrm & 7);
            let sib = usize::from(rm == 4 && mode != 3);
            let displacement = match mode {
                0 if rm == 5 => 4,
                1 => 1,
                2 => 4,
                _ => 0,
            };
            Some(prefixes + 3 + sib + displacement)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(code: &[u8]) -> [u8; ROOM] {
        let mut room = [0x55; ROOM];
        room[..code.len()].copy_from_slice(code);
        room
    }

    #[test]
    fn the_call_takes_the_place_of_padding_alone() {
        // From glibc 2.36 and musl 1.2.3, and one with endbr64.
        let glibc = [
            0xc3, 0x66, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0, 0x0f, 0x1f, 0x40, 0,
        ];
        let musl = [
            0xc3, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0, 0x0f, 0x1f, 0x44, 0, 0,
        ];
        let with_endbr64 = [
            &ENDBR64[..],
            &[0xc3, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0, 0x90],
        ]
        .concat();
        assert_eq!(place(&room(&glibc)), Some(0));
        assert_eq!(place(&room(&musl)), Some(0));
        assert_eq!(place(&room(&with_endbr64)), Some(4));
        // Another function follows at once or after some bytes; and a function that has an effect.
        assert_eq!(place(&room(&[0xc3])), None);
        assert_eq!(place(&room(&[0xc3, 0x0f, 0x1f, 0x40, 0])), None);
        assert_eq!(place(&room(&[0x48, 0x89, 0xc3, 0x90])), None);
        assert_eq!(place(&[0x90; ROOM]), None);
    }
}
