//! Patterns of calls in code.

/// `int3`.
const BREAKPOINT: u8 = 0xcc;

/// Length of the longest call instruction, in bytes.
pub const LONGEST: usize = 7;

/// True if a call instruction ends at the end of these bytes, or may end there under a patch: a
/// call at the end of a window has become a jump, or lies under the breakpoints that fill the
/// window.
pub fn ends_with_call(bytes: &[u8; LONGEST]) -> bool {
    let is_patched = bytes[2] == 0xe9 || bytes[6] == BREAKPOINT;
    is_patched || ends_with_unpatched_call(bytes)
}

/// True if a call instruction ends at the end of these bytes: `e8 rel32`, or `ff /2` in any of its
/// lengths.
pub fn ends_with_unpatched_call(bytes: &[u8; LONGEST]) -> bool {
    let is_indirect = |at: usize, len: usize| {
        bytes[at] == 0xff
            && bytes[at + 1] >> 3 & 7 == 2
            && indirect_len(bytes[at + 1], bytes.get(at + 2).copied()) == len
    };
    bytes[2] == 0xe8 || (2..=LONGEST).any(|len| is_indirect(LONGEST - len, len))
}

/// The offset in bytes of a direct call's target from the call's end, if a breakpoint of a debugger
/// or a uprobe has replaced its first byte (`cc rel32`). Otherwise `None`.
pub fn direct_under_breakpoint(bytes: &[u8; LONGEST]) -> Option<i32> {
    let [_, _, BREAKPOINT, distance @ ..] = *bytes else {
        return None;
    };
    Some(i32::from_le_bytes(distance))
}

/// True if a call with a breakpoint on its first byte may end at the end of these bytes.
pub fn may_be_under_breakpoint(bytes: &[u8; LONGEST]) -> bool {
    let is_indirect = |len: usize| {
        let at = LONGEST - len;
        bytes[at] == BREAKPOINT
            && bytes[at + 1] >> 3 & 7 == 2
            && indirect_len(bytes[at + 1], bytes.get(at + 2).copied()) == len
    };
    direct_under_breakpoint(bytes).is_some() || (2..=LONGEST).any(is_indirect)
}

/// Length in bytes of an instruction with opcode `ff` and this ModRM and SIB byte (Intel SDM volume
/// 2, tables 2-2 and 2-3).
fn indirect_len(modrm: u8, sib: Option<u8>) -> usize {
    let (mode, rm) = (modrm >> 6, modrm & 7);
    if mode == 3 {
        return 2;
    }
    let has_sib = rm == 4;
    let displacement = match mode {
        1 => 1,
        2 => 4,
        _ if rm == 5 => 4,
        _ if has_sib && sib.is_some_and(|s| s & 7 == 5) => 4,
        _ => 0,
    };
    2 + usize::from(has_sib) + displacement
}

/// True if an instruction with this first byte may be the start of a patch: a jump, or a
/// breakpoint.
pub fn may_be_patch(first: u8) -> bool {
    matches!(first, 0xe9 | 0xeb | 0xcc)
}

/// The system call instruction, `syscall`.
pub const SYSTEM_CALL: [u8; 2] = [0x0f, 0x05];

/// The code of musl's `__clone` to which a thread's function returns: it exits the thread with the
/// function's result (src/thread/x86_64/clone.s). A stripped library has no symbol for it.
pub const THREAD_END: [u8; 9] = [0x89, 0xc7, 0x31, 0xc0, 0xb0, 60, 0x0f, 0x05, 0xf4];

/// The first instructions of glibc's `__start_context`, the return address of functions that
/// makecontext(3) has set up: `mov rsp, rbx; mov rdi, [rsp]; test rdi, rdi`
/// (sysdeps/unix/sysv/linux/x86_64/__start_context.S).
pub const START_CONTEXT: [u8; 10] = [0x48, 0x89, 0xdc, 0x48, 0x8b, 0x3c, 0x24, 0x48, 0x85, 0xff];

#[cfg(test)]
mod tests {
    use super::{direct_under_breakpoint, ends_with_call, may_be_under_breakpoint};

    #[test]
    fn calls_of_every_length_are_known() {
        let ends = |call: &[u8]| {
            let mut bytes = [0x90; 7];
            bytes[7 - call.len()..].copy_from_slice(call);
            ends_with_call(&bytes)
        };
        for call in [
            &[0xff, 0xd0][..],               // call rax
            &[0x41, 0xff, 0xd3],             // call r11
            &[0xff, 0x10],                   // call [rax]
            &[0xff, 0x50, 8],                // call [rax + 8]
            &[0xff, 0x54, 0x24, 8],          // call [rsp + 8]
            &[0xff, 0x15, 1, 2, 3, 4],       // call [rip + 0x4030201]
            &[0xff, 0x14, 0xc5, 1, 2, 3, 4], // call [rax*8 + 0x4030201]
            &[0xff, 0x94, 0x24, 1, 2, 3, 4], // call [rsp + 0x4030201]
            &[0xe8, 1, 2, 3, 4],             // call rel32
            &[0xe9, 1, 2, 3, 4],             // a window's jump
            &[0xcc],                         // a window's filling
        ] {
            assert!(ends(call), "{call:x?}");
        }
        for other in [
            &[0xff, 0xe0][..],      // jmp rax
            &[0xff, 0x50],          // call [rax + ?] without its displacement
            &[0xff, 0x15, 1, 2, 3], // a byte short
            &[0xeb, 0xfe],          // jmp rel8
            &[0xc3],                // ret
        ] {
            assert!(!ends(other), "{other:x?}");
        }
    }

    #[test]
    fn calls_under_breakpoints_are_known_as_such() {
        let seven = |call: &[u8]| {
            let mut bytes = [0x90; 7];
            bytes[7 - call.len()..].copy_from_slice(call);
            bytes
        };
        let direct = seven(&[0xcc, 0xfe, 0xff, 0xff, 0xff]);
        assert_eq!(direct_under_breakpoint(&direct), Some(-2));
        for call in [
            &[0xcc, 1, 2, 3, 4][..],
            &[0xcc, 0xd0],
            &[0xcc, 0x50, 8],
            &[0xcc, 0x15, 1, 2, 3, 4],
            &[0xcc, 0x94, 0x24, 1, 2, 3, 4],
        ] {
            let bytes = seven(call);
            assert!(may_be_under_breakpoint(&bytes), "{call:x?}");
            assert!(!ends_with_call(&bytes), "{call:x?}");
        }
        for other in [
            &[0xe8, 1, 2, 3, 4][..],
            &[0xcc, 0xe0],
            &[0xcc, 0x90],
            &[0xc3],
        ] {
            assert!(!may_be_under_breakpoint(&seven(other)), "{other:x?}");
        }
        // The breakpoint has replaced a prefix, which does not matter.
        assert!(ends_with_call(&seven(&[0xcc, 0xff, 0xd3])));
    }
}
