//! The parts of a stub besides its hand-written way ([`super::super::quick`]), as text.

/// Saves what compiled code may change: the registers that a call may change, also those an exit's value is in and those that
/// callers compiled with -fipa-ra rely on, and the flags. The function id into esi.
macro_rules! save {
    () => {
        "
    push r9                            // the argument registers in their order, from below
    push r8
    push rcx
    push rdx
    push rsi
    push rdi
    mov esi, eax                       // the function id, from the hook
    lahf                               // the flags but overflow into ah
    seto al                            // overflow into al: both are cheaper than pushf and popf
    push rax
        "
    };
}

/// Saves what compiled code takes besides: two registers, and the direction flag, which it wants to be clear.
macro_rules! prepare {
    () => {
        "
    push r10
    pushfq
    pop r10
    cld
    and r10d, {direction}
    shl r10d, {to_bit_30}
    or [rsp + 8], r10d                 // the direction flag as it was
    push r11
        "
    };
}

/// Counts a call as its record's schema says, that of the thread rcx with the activation r8, or none, and the record rdx.
macro_rules! enter {
    () => {
        concat!(
            "

            ",
            $crate::arch::x86_64::stubs::parts::prepare!(),
            "
    mov rdi, rcx
    mov rcx, r8
    mov r8, rdx
    lea rdx, [rsp + {pushed}]          // the slot
    call {enter}
    cmp rax, 1
    jbe 4b                             // done
    jmp 2f                             // a thread: the slow way
            "
        )
    };
}

/// What the hand-written way has left over goes on in compiled code, which takes two registers more and a clear direction
/// flag. Of what the flags are in, the highest bit tells that it has been asked before, and the next the direction flag.
macro_rules! compiled {
    ($third:expr) => {
        concat!(
            "
    bts dword ptr [rsp], 31            // asked before?
    sbb ecx, ecx
    neg ecx                            // the fourth argument
            ",
            $crate::arch::x86_64::stubs::parts::prepare!(),
            $third,
            "
    mov edi, esi                       // the function id
    lea rsi, [rsp + {pushed}]          // the slot
    call {fast}
    test al, {found}
    jnz 9f                             // a walk has been found
    cmp rax, 1
    ja 2f                              // a thread: the slow way
    je 4f                              // done
    pop r11                            // again, from the beginning
    pop r10
    btr dword ptr [rsp], 30
    jnc 6f
    std
6:  mov rsi, [rsp + {way_back}]
    mov esi, [rsi - {id}]              // the function id again
    jmp 3b
            "
        )
    };
}

/// Back into the trampoline, with everything as it was: from label `4` where compiled code has run, else from `5`.
macro_rules! restore {
    () => {
        "
4:  pop r11
    pop r10
    bt dword ptr [rsp], 30             // the direction flag
    jnc 5f
    std
5:  pop rax                            // the flags
    add al, 0x7f                       // sets overflow again where al is 1
    sahf
    pop rdi
    pop rsi
    pop rdx
    pop rcx
    pop r8
    pop r9
    ret
        "
    };
}

/// The thread has what the walk came to: on where a remembered one has been found.
macro_rules! found {
    ($resume:expr) => {
        concat!(
            "
9:  lea rcx, [rax - {found}]           // the thread
    pop r11
    pop r10
    btr dword ptr [rsp], 30            // the direction flag
    jnc 36f
    std
36: mov rsi, [rsp + {way_back}]
    mov esi, [rsi - {id}]              // the function id again
    lea rax, [rcx + {run_found}]       // as a run
            ",
            $resume
        )
    };
}

/// The slow way on the thread's private stack, rax the thread. The callee-saved registers have their values from the
/// probe point again.
macro_rules! slow {
    () => {
        "
2:  mov [rax + {rbx}], rbx             // for the walk, and some are used here
    mov [rax + {rbp}], rbp
    mov [rax + {r12}], r12
    mov [rax + {r12} + 8], r13
    mov [rax + {r12} + 16], r14
    mov [rax + {r12} + 24], r15
    mov [rax + {saved_rsp}], rsp
    mov rbx, rax                       // the thread, kept over the calls
    lea r12, [rsp + {pushed}]          // the slot
    mov rcx, [rbx + {page}]            // whether the thread is switched out shows there
    test rcx, rcx
    jz 81f
    mov ecx, [rcx + {lock}]
    bts rcx, 32
81: mov [rbx + {since_lock}], rcx
    rdtsc                              // all from here on is what measuring takes
    shl rdx, 32
    or rax, rdx
    mov [rbx + {since}], rax
    // Signals stay pending before the private stack is in use: a handler must not run on it, nor
    // on an alternate stack from its top again because the thread seems to have left that.
    lea rdi, [rbx + {signal_mask}]
    call {block_signals}
    rdtsc
    shl rdx, 32
    or rax, rdx
    sub rax, [rbx + {since}]
    mov [rbx + {blocking}], rax        // restoring them, after the last reading, takes as long
    mov rsp, [rbx + {private_stack}]
    mov rax, [rbx + {saved_rsp}]
    mov rax, [rax + {way_back} + 16]
    mov r13d, [rax - {id}]             // the function id
    sub rsp, {vectors}                 // vector registers, which compiled code may use from here on
    movups [rsp], xmm0
    movups [rsp + 16], xmm1
    movups [rsp + 32], xmm2
    movups [rsp + 48], xmm3
    movups [rsp + 64], xmm4
    movups [rsp + 80], xmm5
    movups [rsp + 96], xmm6
    movups [rsp + 112], xmm7
    movups [rsp + 128], xmm8
    movups [rsp + 144], xmm9
    movups [rsp + 160], xmm10
    movups [rsp + 176], xmm11
    movups [rsp + 192], xmm12
    movups [rsp + 208], xmm13
    movups [rsp + 224], xmm14
    movups [rsp + 240], xmm15
    mov rdi, rbx
    mov esi, r13d
    mov rdx, r12
    lea rcx, [rip + {trial}]           // who finds out what stubs take calls them by this
    call {slow}
    movups xmm0, [rsp]
    movups xmm1, [rsp + 16]
    movups xmm2, [rsp + 32]
    movups xmm3, [rsp + 48]
    movups xmm4, [rsp + 64]
    movups xmm5, [rsp + 80]
    movups xmm6, [rsp + 96]
    movups xmm7, [rsp + 112]
    movups xmm8, [rsp + 128]
    movups xmm9, [rsp + 144]
    movups xmm10, [rsp + 160]
    movups xmm11, [rsp + 176]
    movups xmm12, [rsp + 192]
    movups xmm13, [rsp + 208]
    movups xmm14, [rsp + 224]
    movups xmm15, [rsp + 240]
    // Back on the application's stack before signals are let in again, and before calls of handlers are: where
    // signals are not blocked, these take the thread from here on.
    mov rsp, [rbx + {saved_rsp}]
    lea rdi, [rbx + {signal_mask}]
    mov r12, [rbx + {r12}]
    mov r13, [rbx + {r12} + 8]
    mov rbp, [rbx + {rbp}]
    rdtsc
    shl rdx, 32
    or rax, rdx
    sub rax, [rbx + {since}]
    add rax, [rbx + {blocking}]
    mov ecx, {most_of_end}             // what takes longer is another thread's
    cmp rax, rcx
    cmova rax, rcx
    mov rcx, [rbx + {overhead}]
    add [rcx], rax
    mov rax, [rbx + {rbx}]
    xor ecx, ecx
    xchg rcx, [rbx + {busy_after}]     // 0, or that a child may come
    mov [rbx + {busy}], rcx
    mov rbx, rax
    call {restore_signals}
    jmp 4b
        "
    };
}

pub(crate) use {compiled, enter, found, prepare, restore, save, slow};
