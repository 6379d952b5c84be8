//! Code that creates children or executes another program by a system call, whose number is in rax
//! (psABI A.2.1).

use std::ops::Range;

use crate::segment::{Forking, Witness};
use ipath_target::arch::code::SYSTEM_CALL;

/// The maximum number of bytes between the instruction that sets the call's number and the call.
const NEAR: usize = 40;

/// The offsets in `text` of the instructions that set the number of a system call that creates a
/// child or executes a program, each with the kind of the call. The call itself may be beyond the
/// unwind entry: glibc's entries end before it.
pub fn system_calls(text: &[u8]) -> impl Iterator<Item = (usize, Witness)> + '_ {
    let calls = memchr::memmem::find_iter(text, &SYSTEM_CALL);
    calls.filter_map(|at| {
        let mut before = at.saturating_sub(NEAR)..at;
        let code = &text[before.clone()];
        let found = |from| Some((from, of_number(number(&text[from..at])?)?));
        let (from, witness) = before.find_map(found)?;
        match witness {
            Witness::Forks(Forking::Clone) if copies(code) => {
                Some((from, Witness::Forks(Forking::Copies)))
            }
            _ => Some((from, witness)),
        }
    })
}

/// True if code passes constant flags to `clone` by `mov edi, imm32`, and they request a child with
/// its own memory.
fn copies(code: &[u8]) -> bool {
    const SIGNAL: i32 = 0xff;
    let mut flags = code.windows(5).filter_map(|insn| match *insn {
        [0xbf, a, b, c, d] => Some(i32::from_le_bytes([a, b, c, d])),
        _ => None,
    });
    flags.any(|flags| flags & SIGNAL == libc::SIGCHLD && flags & libc::CLONE_VM == 0)
}

/// The functions of musl, which have no unwind entries: how they begin (src/process/x86_64/vfork.s,
/// src/thread/x86_64/clone.s), and how they end.
const OF_MUSL: [(&[u8], &[u8], Witness); 2] = [
    // pop rdx; mov eax, 58; syscall; push rdx; mov rdi, rax | jmp __syscall_ret
    (
        &[
            0x5a, 0xb8, 0x3a, 0, 0, 0, 0x0f, 0x05, 0x52, 0x48, 0x89, 0xc7,
        ],
        &[0xe9],
        Witness::Forks(Forking::Always),
    ),
    // xor eax, eax; mov al, 56; mov r11, rdi | hlt; ret
    (
        &[0x31, 0xc0, 0xb0, 0x38, 0x49, 0x89, 0xfb],
        &[0xf4, 0xc3],
        Witness::Forks(Forking::Clone),
    ),
];

/// The ranges, as offsets in `text`, of musl's functions that create children, with the kinds of
/// their calls.
pub fn of_musl(text: &[u8]) -> impl Iterator<Item = (Range<usize>, Witness)> + '_ {
    /// The maximum length of a function that creates a child, in bytes.
    const LONGEST: usize = 80;
    /// Bytes of a jump after its opcode.
    const DISPLACEMENT: usize = 4;
    OF_MUSL
        .into_iter()
        .flat_map(move |(begins, ends, witness)| {
            memchr::memmem::find_iter(text, begins).filter_map(move |start| {
                let from = start + begins.len();
                let rest = text.get(from..(start + LONGEST).min(text.len()))?;
                let end = from + memchr::memmem::find(rest, ends)? + ends.len();
                let end = match ends {
                    [0xe9] => end + DISPLACEMENT,
                    _ => end,
                };
                (end <= text.len()).then_some((start..end, witness))
            })
        })
}

/// The number that the first instruction puts into eax: `mov eax, imm32`, or `mov al, imm8` if eax
/// is 0. `None` for another instruction.
fn number(code: &[u8]) -> Option<i64> {
    match *code {
        [0xb8, a, b, c, d, ..] => Some(u32::from_le_bytes([a, b, c, d]).into()),
        [0xb0, number, ..] => Some(number.into()),
        _ => None,
    }
}

/// The kind of the system call with this number. `None` if it neither creates a child nor executes
/// a program.
fn of_number(number: i64) -> Option<Witness> {
    match number {
        libc::SYS_vfork => Some(Witness::Forks(Forking::Always)),
        libc::SYS_clone => Some(Witness::Forks(Forking::Clone)),
        libc::SYS_clone3 => Some(Witness::Forks(Forking::Clone3)),
        libc::SYS_fork => Some(Witness::Forks(Forking::Copies)),
        libc::SYS_execve | libc::SYS_execveat => Some(Witness::Execs),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_known_by_their_number() {
        // vfork, clone3 and clone of glibc 2.36, from the instruction that sets eax, and a call of
        // getpid.
        let vfork = [0x5f, 0xb8, 0x3a, 0, 0, 0, 0x0f, 0x05, 0x57];
        let clone3 = [0xb8, 0xb3, 0x01, 0, 0, 0x0f, 0x05, 0x48, 0x85, 0xc0];
        let clone = [0xb8, 0x38, 0, 0, 0, 0x0f, 0x05];
        // glibc's _Fork: mov edi, 0x1200011; lea r10, [rax + 0x2d0]; mov eax, 56; syscall.
        // musl's: mov eax, 57; syscall.
        let copies = [
            0xbf, 0x11, 0, 0x20, 0x01, 0x4c, 0x8d, 0x90, 0xd0, 0x02, 0, 0, 0xb8, 0x38, 0, 0, 0,
            0x0f, 0x05,
        ];
        let of_musl = [0xb8, 0x39, 0, 0, 0, 0x0f, 0x05];
        let getpid = [0xb8, 0x27, 0, 0, 0, 0x0f, 0x05, 0xc3];
        let execve = [0xb8, 0x3b, 0, 0, 0, 0x0f, 0x05, 0x48, 0x3d];
        let padding = [0x90; NEAR];
        let code = [
            &padding[..],
            &getpid,
            &padding,
            &vfork,
            &padding,
            &clone3,
            &padding,
            &clone,
            &padding,
            &copies,
            &padding,
            &of_musl,
            &padding,
            &execve,
        ]
        .concat();
        let found: Vec<_> = system_calls(&code).map(|(_, witness)| witness).collect();
        let copies = [Witness::Forks(Forking::Copies); 2];
        let expected = [
            Witness::Forks(Forking::Always),
            Witness::Forks(Forking::Clone3),
            Witness::Forks(Forking::Clone),
        ];
        assert_eq!(found, [&expected[..], &copies, &[Witness::Execs]].concat());
    }

    #[test]
    fn functions_of_musl_are_known_by_their_code() {
        // From musl 1.2.3.
        let vfork = [
            0x5a, 0xb8, 0x3a, 0, 0, 0, 0x0f, 0x05, 0x52, 0x48, 0x89, 0xc7, 0xe9, 0x70, 0x3b, 0, 0,
        ];
        let clone = [
            0x31, 0xc0, 0xb0, 0x38, 0x49, 0x89, 0xfb, 0x48, 0x89, 0xd7, 0x4c, 0x89, 0xc2, 0x4d,
            0x89, 0xc8, 0x4c, 0x8b, 0x54, 0x24, 0x08, 0x4d, 0x89, 0xd9, 0x48, 0x83, 0xe6, 0xf0,
            0x48, 0x83, 0xee, 0x08, 0x48, 0x89, 0x0e, 0x0f, 0x05, 0x85, 0xc0, 0x75, 0x0f, 0x31,
            0xed, 0x5f, 0x41, 0xff, 0xd1, 0x89, 0xc7, 0x31, 0xc0, 0xb0, 0x3c, 0x0f, 0x05, 0xf4,
            0xc3,
        ];
        let code = [&vfork[..], &[0xcc; 3], &clone].concat();
        let found: Vec<_> = of_musl(&code).collect();
        assert_eq!(
            found,
            [
                (0..17, Witness::Forks(Forking::Always)),
                (20..20 + clone.len(), Witness::Forks(Forking::Clone))
            ]
        );
        for cut in 0..code.len() {
            assert!(of_musl(&code[..cut]).all(|(range, _)| range.end <= cut));
        }
    }
}
