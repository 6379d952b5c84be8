//! The stub of paths. Its hooks step over the red zone, and pass the address of their row in rax.

use core::arch::naked_asm;

use abi::arch::stack::RED_ZONE;

use super::DIRECTION;
use crate::probe::path::ipath_follow;

/// Bytes from the stack pointer after all pushes to that of the activation: the pushed registers,
/// the return address, the hook's rax and the red zone.
const ABOVE: u64 = 8 * 9 + 8 + 8 + RED_ZONE;

/// Called by the hook of a path.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ipath_path_stub() {
    naked_asm!(
        "
    push rcx                           // save the caller-saved registers of compiled code
    push rdx
    push rsi
    push rdi
    push r8
    push r9
    push r10
    push r11
    mov rdi, rax                       // first argument: the row
    lahf                               // all flags except overflow, into ah
    seto al                            // overflow into al
    push rax                           // save the flags
    lea rsi, [rsp + {above}]           // second: the stack pointer of the activation
    mov rdx, rbp                       // third: the frame pointer
    pushfq                             // push the flags to read the direction flag
    test dword ptr [rsp], {direction}  // is it set?
    jnz 7f
    call {follow}
5:  add rsp, 8                         // drop the flags with the direction flag
    pop rax
    add al, 0x7f                       // restore the overflow flag
    sahf                               // restore the other flags
    pop r11
    pop r10
    pop r9
    pop r8
    pop rdi
    pop rsi
    pop rdx
    pop rcx
    ret
7:  cld                                // the ABI requires a clear direction flag
    call {follow}
    std
    jmp 5b
        ",
        above = const ABOVE,
        direction = const DIRECTION,
        follow = sym ipath_follow,
    );
}
