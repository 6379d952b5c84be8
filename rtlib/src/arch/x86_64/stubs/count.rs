//! The stub of counts. Its hooks step over the red zone.

use core::arch::naked_asm;
use core::mem::{offset_of, size_of};

use abi::count::{BANK_OF, BANK_SHIFT, Bank, FIRST, HASHED, SHARED};
use abi::image::{ALIVE, Parameters};

use crate::os::parameters::{ipath_alive, ipath_parameters};

const _: () = assert!(size_of::<Bank>() == 16 && offset_of!(Bank, owner) == 0);

/// Called by the hook of a count. eax is the counter's number.
///
/// Each counter is incremented by one instruction, so a signal handler on the thread does not
/// disturb it.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ipath_count_stub() {
    naked_asm!(
        "
    push rcx                           // save three registers
    push rdx
    push rsi
    mov ecx, eax                       // the number of the counter
    lahf                               // all flags except overflow, into ah
    seto al                            // overflow into al
    push rax                           // save the flags
    cmp dword ptr [rip + {alive}], {alive_word} // zeroed in a forked child
    jne 5f                             // no session: nothing to count
    cmp dword ptr [rip + {parameters} + {rdfsbase}], 0 // can the FS base be read from its register?
    jne 8f                             // yes: use rdfsbase
    mov rdx, fs:[0]                    // the control block starts with its own address
2:  lea rsi, [rip + {alive} + {first}]
    cmp [rsi], rdx                     // is this the first thread that counts?
    je 3f
    cmp qword ptr [rsi], 0             // is there none yet?
    je 9f
4:  mov rax, rdx
    shr rax, {shift}
    and eax, {bank_of}                 // bytes from the entry of the first of the hashed banks
    lea rsi, [rip + {alive}]           // the table of banks
    lea rsi, [rsi + rax + {hashed}]    // the entry of the thread's bank
    cmp [rsi], rdx                     // is this thread its owner?
    jne 7f
3:  mov rsi, [rsi + {at}]              // the bank
    inc qword ptr [rsi + 8*rcx]        // count
5:  pop rax
    add al, 0x7f                       // restore the overflow flag
    sahf                               // restore the other flags
    pop rsi
    pop rdx
    pop rcx
    ret
    // The bank has another owner, or none.
7:  xor eax, eax                       // expect none
    lock cmpxchg [rsi], rdx            // become its owner
    je 3b
    mov rsi, [rip + {alive} + {shared} + {at}] // the bank that several threads use
    lock inc qword ptr [rsi + 8*rcx]   // count
    jmp 5b
8:  rdfsbase rdx                       // read the FS base from its register
    jmp 2b
9:  xor eax, eax                       // expect none
    lock cmpxchg [rsi], rdx            // become the first one
    je 3b
    jmp 4b
        ",
        alive = sym ipath_alive,
        alive_word = const ALIVE as i32,
        parameters = sym ipath_parameters,
        rdfsbase = const offset_of!(Parameters, reads_tp),
        shift = const BANK_SHIFT,
        bank_of = const BANK_OF,
        first = const FIRST * size_of::<Bank>(),
        hashed = const HASHED * size_of::<Bank>(),
        shared = const SHARED * size_of::<Bank>(),
        at = const offset_of!(Bank, at),
    );
}
