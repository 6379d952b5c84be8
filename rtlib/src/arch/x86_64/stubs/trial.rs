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
        "je {counted}",                     // one at the entry
        "jmp {timed}",                      // one at the entry and one at the exit
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
    push rbp                           // callee-saved,
    push r12                           // like the counter's register,
    push r13                           // and the clock's
    lea rax, [rip + {exit}]            // the second cell:
    push rax                           // the exit's stub
    lea rax, [rip + {entry}]           // the first cell:
    push rax                           // the entry's stub
    mov rbp, rsp                       // hooks find the cells by rbp
    mov rsp, rsi                       // calls are made on the other stack
    mov r12, rdi                       // the counter
    mov ecx, 3                         // the first operand of the work
    lfence                             // all before has been done
    rdtsc                              // edx:eax
    shl rdx, 32                        // is one number:
    lea r13, [rax + rdx]               // the start
2:  call 10f                           // the function
    dec r12                            // one call less to make
    jnz 2b                             // until there is none
    lfence                             // all before has been done
    rdtsc                              // edx:eax
    shl rdx, 32                        // is one number:
    or rax, rdx                        // the end
    sub rax, r13                       // ticks between the two
    lea rsp, [rbp + 16]                // back to the first stack, without the cells
    pop r13                            // as they were
    pop r12                            // before
    pop rbp                            // the call
    ret                                // with the ticks in rax
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
    imul rcx, rcx, 5                   // depends on the one before
    .endr
    mov eax, edi                       // the result is the argument
        "
    };
}

/// A hook as trampolines have it: `call [rbp + OFFSET]` has six bytes there, too.
macro_rules! hook {
    ($offset:literal) => {
        concat!(
            "
    push rax                           // as trampolines do
    mov eax, {id}                      // the function id
    .byte 0xff, 0x95
    .long ",
            $offset,
            "
    pop rax                            // the program's rax
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
        "10: jmp 12f",                      // as a patch leads to a trampoline
        "\n11:",
        body!(),
        "jmp 13f",                          // as an exit leads to its trampoline
        "\n12:",
        hook!("0"),
        "jmp 11b",                          // back to the function
        "\n13:",
        hook!("8"),
        "ret"                               // to the caller
    )
);
