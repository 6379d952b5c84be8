//! The parts of a stub besides its hand-written way ([`super::super::quick`]), as text.

/// Saves what compiled code may change: the registers that a call may change, also those an exit's value is in and those that
/// callers compiled with -fipa-ra rely on, and the flags. The function id into esi.
macro_rules! save {
    () => {
        "
    push r9                            // the argument registers in their order, from below
    push r8                            // the fifth argument
    push rcx                           // the fourth
    push rdx                           // the third
    push rsi                           // the second
    push rdi                           // the first
    mov esi, eax                       // the function id, from the hook
    lahf                               // the flags but overflow into ah
    seto al                            // overflow into al: both are cheaper than pushf and popf
    push rax                           // the flags, on top
        "
    };
}

/// Makes the walk again that is remembered for the call of the function esi, before anything else of a stub.
macro_rules! verify {
    () => {
        "
    push rsi                           // the function id, kept over the call
    push r10                           // taken by compiled code
    push r11                           // and this
    pushfq                             // with the direction flag,
    cld                                // which compiled code wants clear
    mov edi, esi                       // first argument: the function id
    lea rsi, [rsp + {pushed} + 16]     // second: the slot, above four pushes more
    mov rdx, rbp                       // third: the frame pointer
    call {verify}                      // ends the program if the walk differs
    popfq                              // the direction flag
    pop r11                            // and all else
    pop r10                            // as it was
    pop rsi                            // the function id
        "
    };
}

/// Saves what compiled code takes besides: two registers, and the direction flag, which it wants to be clear.
macro_rules! prepare {
    () => {
        "
    push r10                           // taken by compiled code
    pushfq                             // the direction flag is among the flags
    pop r10                            // into a register,
    cld                                // and clear from here on
    and r10d, {direction}              // nothing but that flag,
    shl r10d, {to_bit_30}              // at bit 30, which the saved flags leave free
    or [rsp + 8], r10d                 // the direction flag as it was
    push r11                           // taken by compiled code
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
    mov rdi, rcx                       // first argument: the thread
    mov rcx, r8                        // fourth: the activation, or none
    mov r8, rdx                        // fifth: the record
    lea rdx, [rsp + {pushed}]          // the slot
    call {enter}                       // measures and counts the call
    cmp rax, 1                         // `DONE` or less, or a thread
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
    sbb ecx, ecx                       // all ones if it has been,
    neg ecx                            // the fourth argument
            ",
            $crate::arch::x86_64::stubs::parts::prepare!(),
            $third,
            "
    mov edi, esi                       // the function id
    lea rsi, [rsp + {pushed}]          // the slot
    call {fast}                        // asks compiled code for a way
    test al, {found}                   // a thread has its lowest bits free
    jnz 9f                             // a walk has been found
    cmp rax, 1                         // `DONE`, or a thread above it
    ja 2f                              // a thread: the slow way
    je 4f                              // done
    pop r11                            // again, from the beginning
    pop r10                            // the other register that compiled code took
    btr dword ptr [rsp], 30            // the direction flag as it was; bit 30 is clear again
    jnc 6f                             // it was clear
    std                                // it was set
6:  mov rsi, [rsp + {way_back}]        // the way back follows the hook's call
    mov esi, [rsi - {id}]              // the function id again
    jmp 3b                             // to the hand-written way
            "
        )
    };
}

/// Back into the trampoline, with everything as it was: from label `4` where compiled code has run, else from `5`.
macro_rules! restore {
    () => {
        "
4:  pop r11                            // taken for compiled code
    pop r10                            // and this
    bt dword ptr [rsp], 30             // the direction flag
    jnc 5f                             // it was clear
    std                                // it was set
5:  pop rax                            // the flags
    add al, 0x7f                       // sets overflow again where al is 1
    sahf                               // the other flags from ah
    pop rdi                            // the argument registers, from the last pushed
    pop rsi                            // the second
    pop rdx                            // the third
    pop rcx                            // the fourth
    pop r8                             // the fifth
    pop r9                             // the sixth
    ret                                // into the trampoline
        "
    };
}

/// The thread has what the walk came to: on where a remembered one has been found.
macro_rules! found {
    ($resume:expr) => {
        concat!(
            "
9:  lea rcx, [rax - {found}]           // the thread
    pop r11                            // taken for compiled code
    pop r10                            // and this
    btr dword ptr [rsp], 30            // the direction flag
    jnc 36f                            // it was clear
    std                                // it was set
36: mov rsi, [rsp + {way_back}]        // the way back follows the hook's call
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
    mov [rax + {rbp}], rbp             // the frame pointer
    mov [rax + {r12}], r12             // the others in their order
    mov [rax + {r12} + 8], r13         // r13
    mov [rax + {r12} + 16], r14        // r14
    mov [rax + {r12} + 24], r15        // r15
    mov [rax + {saved_rsp}], rsp       // the program's stack, to come back to
    mov rbx, rax                       // the thread, kept over the calls
    lea r12, [rsp + {pushed}]          // the slot
    mov rcx, [rbx + {page}]            // whether the thread is switched out shows there
    test rcx, rcx                      // is there such a page?
    jz 81f                             // 0 is kept if not
    mov ecx, [rcx + {lock}]            // its lock counts the switches
    bts rcx, 32                        // bit 32 tells that there is one
81: mov [rbx + {since_lock}], rcx      // kept until the call has been measured
    rdtsc                              // all from here on is what measuring takes
    shl rdx, 32                        // edx:eax
    or rax, rdx                        // is one number
    mov [rbx + {since}], rax           // where what measuring takes begins
    // Signals stay pending before the private stack is in use: a handler must not run on it, nor
    // on an alternate stack from its top again because the thread seems to have left that.
    lea rdi, [rbx + {signal_mask}]     // where the old mask goes
    call {block_signals}               // clobbers caller-saved registers only
    rdtsc                              // the clock once more:
    shl rdx, 32                        // edx:eax
    or rax, rdx                        // is one number,
    sub rax, [rbx + {since}]           // less the first reading
    mov [rbx + {blocking}], rax        // restoring them, after the last reading, takes as long
    mov rsp, [rbx + {private_stack}]   // off the program's stack
    mov rax, [rbx + {saved_rsp}]       // the stub's frame is on that still
    mov rax, [rax + {way_back} + 16]   // the way back follows the hook's call
    mov r13d, [rax - {id}]             // the function id
    sub rsp, {vectors}                 // vector registers, which compiled code may use from here on
    .irp i,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15
    movups [rsp + 16*\\i], xmm\\i      // below `VECTORS`, in their order
    .endr
    mov rdi, rbx                       // first argument: the thread
    mov esi, r13d                      // second: the function id
    mov rdx, r12                       // third: the slot
    lea rcx, [rip + {trial}]           // who finds out what stubs take calls them by this
    call {slow}                        // records the call
    .irp i,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15
    movups xmm\\i, [rsp + 16*\\i]      // as they were
    .endr
    // Back on the application's stack before signals are let in again, and before calls of handlers are: where
    // signals are not blocked, these take the thread from here on.
    mov rsp, [rbx + {saved_rsp}]       // the program's stack
    lea rdi, [rbx + {signal_mask}]     // the old mask, for `restore_signals`
    mov r12, [rbx + {r12}]             // compiled code has kept r14 and r15,
    mov r13, [rbx + {r12} + 8]         // and these three were used here
    mov rbp, [rbx + {rbp}]             // or may be changed by the stub's work
    rdtsc                              // where what measuring takes ends
    shl rdx, 32                        // edx:eax
    or rax, rdx                        // is one number,
    sub rax, [rbx + {since}]           // less the first reading,
    add rax, [rbx + {blocking}]        // and what the rest takes
    mov ecx, {most_of_end}             // what takes longer is another thread's
    cmp rax, rcx                       // more than the most?
    cmova rax, rcx                     // the most then
    mov rcx, [rbx + {overhead}]        // where the thread adds up what measuring takes
    add [rcx], rax                     // this call, too
    mov rax, [rbx + {rbx}]             // rbx as it was, for the end
    xor ecx, ecx                       // nothing is expected after this call
    xchg rcx, [rbx + {busy_after}]     // 0, or that a child may come
    mov [rbx + {busy}], rcx            // the thread may record again
    mov rbx, rax                       // the last callee-saved register
    call {restore_signals}             // pending signals come now
    jmp 4b                             // to the end of the stub
        "
    };
}

pub(crate) use {compiled, enter, found, prepare, restore, save, slow, verify};
