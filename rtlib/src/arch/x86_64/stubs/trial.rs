//! The calls with which the runtime measures the cost of its stubs ([`crate::probe::trial`]).

use core::arch::naked_asm;

use abi::TRIAL;

use super::{ipath_ender_stub, ipath_entry_stub, ipath_exit_stub, ipath_lend_stub};
use crate::probe::trial::{COUNTED, LENT, PLAIN, TIMED};

/// Makes `times` calls with the chosen probes, see [`crate::probe::trial::Calls`].
#[unsafe(naked)]
pub unsafe extern "C" fn calls(times: u64, stack: u64, probes: u32) -> u64 {
    naked_asm!(
        "cmp edx, {one}",                // which probes are chosen?
        "jb {plain}",                    // none; the arguments stay in their registers
        "je {counted}",                     // a probe at the entry
        "cmp edx, {three}",                 // more than these two?
        "jb {timed}",                       // probes at the entry and the exit
        "je {lent}",                        // a tail call to a function with both
        "jmp {ended}",                      // a tail call to a function with one at the exit
        one = const COUNTED,
        three = const LENT,
        plain = sym plain,
        counted = sym counted,
        timed = sym timed,
        lent = sym lent,
        ended = sym ended,
    );
}

const _: () = assert!(PLAIN < COUNTED && COUNTED < TIMED && TIMED < LENT);

/// A function that makes `times` calls of `$function`, at label 10, on the stack that ends at
/// `stack`. Returns ticks. As in the cells of trampolines, [rbp] is the address of the entry stub,
/// [rbp+8] that of the exit stub, [rbp+16] that of the stub of tail calls, and [rbp+24] that of
/// exits of functions that are not measured.
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
    lea rax, [rip + {ender}]           // the address of the stub of exits that only end calls
    push rax                           // store it in the fourth cell
    lea rax, [rip + {lend}]            // the address of the stub of tail calls
    push rax                           // store it in the third cell
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
    lea rsp, [rbp + 32]                // switch back to the first stack and drop the cells
    pop r13                            // restore r13
    pop r12                            // restore r12
    pop rbp                            // restore rbp
    ret                                // return the ticks in rax
                ",
                $function,
                entry = sym ipath_entry_stub,
                exit = sym ipath_exit_stub,
                lend = sym ipath_lend_stub,
                ender = sym ipath_ender_stub,
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
    concat!("10:", body!(), "ret /* {id} */")
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

/// The code of a function that leaves by a tail call at once, and of its callee's entry and body.
/// Then follow the hook at the callee's exit and its return.
macro_rules! tail_call {
    ($entry:expr) => {
        concat!(
            "10: jmp 12f", // jump to the trampoline, as a patch does
            "\n12:",
            hook!("0"),
            "jmp 14f",       // return to the function
            "\n14: jmp 15f", // jump to the trampoline of its tail call
            "\n15:",
            hook!("16"),
            "jmp 16f", // the tail call
            "\n16:",
            $entry,
            "11:",
            body!(),
            "jmp 13f", // jump to the exit's trampoline, as a patch does
            "\n13:",
        )
    };
}

calls!(
    /// Calls of a function with probes at its entry and its tail call to one with probes at the
    /// entry and the exit.
    lent,
    concat!(
        tail_call!(concat!("jmp 17f", "\n17:", hook!("0"), "jmp 11f\n")),
        hook!("8"),
        "ret"                               // return to the caller
    )
);

calls!(
    /// Calls of a function with probes at its entry and its tail call to one with a probe at its
    /// exit, which is not measured.
    ended,
    concat!(
        tail_call!(""),
        hook!("24"),
        "ret"                               // return to the caller
    )
);
