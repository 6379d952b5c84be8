//! The calls with which the runtime measures the cost of its stubs ([`crate::probe::trial`]).

use core::arch::naked_asm;

use abi::TRIAL;

use super::{ipath_entry_stub, ipath_exit_stub};
use crate::probe::trial::{COUNTED, PLAIN};

/// Makes `times` calls with the chosen probes, see [`crate::probe::trial::Calls`].
#[unsafe(naked)]
pub unsafe extern "C" fn calls(times: u64, stack: u64, probes: u32) -> u64 {
    naked_asm!(
        "cmp edx, {one}",                // which probes are chosen?
        "jb {plain}",                    // none; the arguments stay in their registers
        "je {counted}",                     // a probe at the entry
        "jmp {timed}",                      // probes at the entry and the exit
        one = const COUNTED,
        plain = sym plain,
        counted = sym counted,
        timed = sym timed,
    );
}

const _: () = assert!(PLAIN < COUNTED);

/// A function that makes `times` calls of `$function`, at label 10, on the stack that ends at
/// `stack`. Returns ticks. As in the cells of trampolines, [rbp] is the address of the entry stub,
/// and [rbp+8] that of the exit stub.
macro_rules! calls {
    ($(#[$doc:meta])* $name:ident, $function:expr) => {
        $(#[$doc])*
        #[unsafe(naked)]
        unsafe extern "C" fn $name(times: u64, stack: u64) -> u64 {
            naked_asm!(
                "
    push rbp                           // save rbp, which will point to the cells
    push r12                           // save r12, used for the counter
    push r13                           // save r13, used for the start time
    lea rax, [rip + {exit}]            // the address of the exit stub
    push rax                           // store it in the second cell
    lea rax, [rip + {entry}]           // the address of the entry stub
    push rax                           // store it in the first cell
    mov rbp, rsp                       // hooks address the cells relative to rbp
    mov rsp, rsi                       // switch to the other stack
    mov r12, rdi                       // the number of calls left
    mov ecx, 3                         // the initial operand of the function's work
    lfence                             // wait for all earlier instructions
    rdtsc                              // read the clock into edx:eax
    shl rdx, 32                        // the high half of edx:eax
    lea r13, [rax + rdx]               // the start time
2:  call 10f                           // call the function
    dec r12                            // one call fewer left
    jnz 2b                             // repeat until none is left
    lfence                             // wait for all earlier instructions
    rdtsc                              // read the clock into edx:eax
    shl rdx, 32                        // the high half of edx:eax
    or rax, rdx                        // the end time
    sub rax, r13                       // the elapsed ticks
    lea rsp, [rbp + 16]                // switch back to the first stack and drop the cells
    pop r13                            // restore r13
    pop r12                            // restore r12
    pop rbp                            // restore rbp
    ret                                // return the ticks in rax
                ",
                $function,
                entry = sym ipath_entry_stub,
                exit = sym ipath_exit_stub,
                id = const TRIAL,
            );
        }
    };
}

/// The function's body: it takes about as long as reading the clock, and depends on the result of
/// the last call. It returns its argument, a small value.
macro_rules! body {
    () => {
        "
    .rept 16
    imul rcx, rcx, 5                   // each multiplication depends on the previous one
    .endr
    mov eax, edi                       // return the argument
        "
    };
}

/// A hook like those of trampolines. `call [rbp + OFFSET]` has six bytes, too.
macro_rules! hook {
    ($offset:literal) => {
        concat!(
            "
    push rax                           // save rax, as trampolines do
    mov eax, {id}                      // the function id
    .byte 0xff, 0x95
    .long ",
            $offset,
            "
    pop rax                            // restore rax
            "
        )
    };
}

calls!(
    /// Calls without probes.
    plain,
    concat!("10:", body!(), "ret /* {entry} {exit} {id} */")
);
calls!(
    /// Calls with a probe at the entry.
    counted,
    concat!("10: jmp 12f", "\n11:", body!(), "ret", "\n12:", hook!("0"), "jmp 11b")
);
calls!(
    /// Calls with probes at the entry and the exit.
    timed,
    concat!(
        "10: jmp 12f",                      // jump to the trampoline, as a patch does
        "\n11:",
        body!(),
        "jmp 13f",                          // jump to the exit's trampoline, as a patch does
        "\n12:",
        hook!("0"),
        "jmp 11b",                          // return to the function
        "\n13:",
        hook!("8"),
        "ret"                               // return to the caller
    )
);
