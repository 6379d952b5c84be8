//! The calls by which the runtime finds out what its stubs take ([`crate::probe::trial`]).

use core::arch::naked_asm;

use abi::TRIAL;

use super::{ipath_entry_stub, ipath_exit_stub};
use crate::probe::trial::{COUNTED, PLAIN};

/// See [`crate::probe::trial::Calls`].
#[unsafe(naked)]
pub unsafe extern "C" fn calls(times: u64, stack: u64, probes: u32) -> u64 {
    naked_asm!(
        "cmp edx, {one}",                // which probes?
        "jb {plain}",                    // none; each function takes the other arguments
        "je {counted}",
        "jmp {timed}",
        one = const COUNTED,
        plain = sym plain,
        counted = sym counted,
        timed = sym timed,
    );
}

const _: () = assert!(PLAIN < COUNTED);

/// A function that makes so many calls of `$function`, at label 10, on the stack that ends at the second argument; returns ticks.
/// As the cells of trampolines have it, [rbp] is the address of the entry's stub, and [rbp+8] that of the exit's.
macro_rules! calls {
    ($(#[$doc:meta])* $name:ident, $function:expr) => {
        $(#[$doc])*
        #[unsafe(naked)]
        unsafe extern "C" fn $name(times: u64, stack: u64) -> u64 {
            naked_asm!(
                "
    push rbp
    push r12
    push r13
    lea rax, [rip + {exit}]
    push rax
    lea rax, [rip + {entry}]
    push rax
    mov rbp, rsp
    mov rsp, rsi
    mov r12, rdi
    mov ecx, 3
    lfence
    rdtsc
    shl rdx, 32
    lea r13, [rax + rdx]
2:  call 10f
    dec r12
    jnz 2b
    lfence
    rdtsc
    shl rdx, 32
    or rax, rdx
    sub rax, r13
    lea rsp, [rbp + 16]
    pop r13
    pop r12
    pop rbp
    ret
                ",
                $function,
                entry = sym ipath_entry_stub,
                exit = sym ipath_exit_stub,
                id = const TRIAL,
            );
        }
    };
}

/// What the function does: something that takes about as long as reading the clock, by what the call before has left. It returns
/// a value as small as its argument.
macro_rules! body {
    () => {
        "
    .rept 16
    imul rcx, rcx, 5
    .endr
    mov eax, edi
        "
    };
}

/// A hook as trampolines have it: `call [rbp + OFFSET]` has six bytes there, too.
macro_rules! hook {
    ($offset:literal) => {
        concat!(
            "
    push rax
    mov eax, {id}
    .byte 0xff, 0x95
    .long ",
            $offset,
            "
    pop rax
            "
        )
    };
}

calls!(
    /// Without probes.
    plain,
    concat!("10:", body!(), "ret /* {entry} {exit} {id} */")
);
calls!(
    /// With one at the entry.
    counted,
    concat!("10: jmp 12f", "\n11:", body!(), "ret", "\n12:", hook!("0"), "jmp 11b")
);
calls!(
    /// With one at the entry and one at the exit.
    timed,
    concat!(
        "10: jmp 12f",
        "\n11:",
        body!(),
        "jmp 13f",
        "\n12:",
        hook!("0"),
        "jmp 11b",
        "\n13:",
        hook!("8"),
        "ret"
    )
);
