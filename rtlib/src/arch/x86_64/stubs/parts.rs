//! The parts of a stub, other than its fast path ([`super::super::quick`]), as text.

/// Saves the registers that compiled code may change: the caller-saved ones, including those with a
/// return value and those that callers compiled with -fipa-ra rely on, and the flags. The function
/// id goes into esi.
macro_rules! save {
    () => {
        "
    push r9                            // save the sixth argument; the first is stored lowest
    push r8                            // save the fifth argument
    push rcx                           // save the fourth argument
    push rdx                           // save the third argument
    push rsi                           // save the second argument
    push rdi                           // save the first argument
    mov esi, eax                       // the function id that the hook has loaded
    lahf                               // all flags except overflow, into ah
    seto al                            // overflow into al; cheaper than pushf and popf together
    push rax                           // save the flags, right below the arguments
        "
    };
}

/// Repeats the cached walk of a call of the function esi, before all other work of a stub.
macro_rules! verify {
    () => {
        "
    push rsi                           // save the function id across the call
    push r10                           // save r10, caller-saved in compiled code
    push r11                           // save r11, caller-saved in compiled code
    pushfq                             // save the flags, including the direction flag
    cld                                // the ABI requires a clear direction flag
    mov edi, esi                       // first argument: the function id
    lea rsi, [rsp + {pushed} + 16]     // second: the slot, above four more pushed words
    mov rdx, rbp                       // third: the frame pointer
    call {verify}                      // aborts the program if the walk differs
    popfq                              // restore the direction flag
    pop r11                            // restore r11
    pop r10                            // restore r10
    pop rsi                            // restore the function id
        "
    };
}

/// Saves what compiled code needs additionally: two registers, and the direction flag, which must
/// be clear.
macro_rules! prepare {
    () => {
        "
    push r10                           // save r10, caller-saved in compiled code
    pushfq                             // push the flags to read the direction flag
    pop r10                            // move them into r10
    cld                                // the ABI requires a clear direction flag
    and r10d, {direction}              // keep only the saved direction flag
    shl r10d, {to_bit_30}              // move it to bit 30, which is free in the saved flags
    or [rsp + 8], r10d                 // add it to the saved flags
    push r11                           // save r11, caller-saved in compiled code
        "
    };
}

/// Counts a call of the thread rcx by the schema of its record rdx. r8 is its activation, or none.
macro_rules! enter {
    () => {
        concat!(
            "

            ",
            $crate::arch::x86_64::stubs::parts::prepare!(),
            "
    mov rdi, rcx                       // first argument: the thread
    mov rcx, r8                        // fourth: the activation, or null
    mov r8, rdx                        // fifth: the record
    lea rdx, [rsp + {pushed}]          // third: the slot
    call {enter}                       // measure and count the call
    cmp rax, 1                         // `DONE` or less: finished; above: a thread
    jbe 4b                             // finished: return to the trampoline
    jmp 2f                             // a thread: take the slow path
            "
        )
    };
}

/// Continues in compiled code if the fast path could not finish. It needs two more registers and a
/// clear direction flag. In the saved flags, the highest bit is set on a repeated attempt, and the
/// next one is the direction flag.
macro_rules! compiled {
    ($third:expr) => {
        concat!(
            "
    bts dword ptr [rsp], 31            // test and set the retry flag
    sbb ecx, ecx                       // all ones if this is a retry, else 0
    neg ecx                            // fourth argument: 1 if this is a retry, else 0
            ",
            $crate::arch::x86_64::stubs::parts::prepare!(),
            $third,
            "
    mov edi, esi                       // first argument: the function id
    lea rsi, [rsp + {pushed}]          // second: the slot
    call {fast}                        // try the fast path in compiled code
    test al, {found}                   // `FOUND` set in the thread's address, which is aligned?
    jnz 9f                             // yes: a cached walk was found
    cmp rax, 1                         // `DONE`, or above it a thread
    ja 2f                              // a thread: take the slow path
    je 4f                              // `DONE`: return to the trampoline
    pop r11                            // `AGAIN`: restore r11 and retry
    pop r10                            // restore r10
    btr dword ptr [rsp], 30            // test the saved direction flag and clear bit 30
    jnc 6f                             // it was clear
    std                                // restore the set direction flag
6:  mov rsi, [rsp + {way_back}]        // the return address of the hook's call
    mov esi, [rsi - {id}]              // reload the function id from the hook's code
    jmp 3b                             // retry the assembly fast path
            "
        )
    };
}

/// Returns to the trampoline with all registers restored: from label `4` after compiled code,
/// otherwise from `5`.
macro_rules! restore {
    () => {
        "
4:  pop r11                            // restore r11
    pop r10                            // restore r10
    bt dword ptr [rsp], 30             // test the saved direction flag
    jnc 5f                             // it was clear
    std                                // restore the set direction flag
5:  pop rax                            // the saved flags
    add al, 0x7f                       // restore overflow: 1 + 0x7f overflows, 0 + 0x7f does not
    sahf                               // restore the other flags from ah
    pop rdi                            // restore the first argument
    pop rsi                            // restore the second argument
    pop rdx                            // restore the third argument
    pop rcx                            // restore the fourth argument
    pop r8                             // restore the fifth argument
    pop r9                             // restore the sixth argument
    ret                                // return to the trampoline
        "
    };
}

/// Continues as if the fast path had found a cached walk: the run is the thread's, which has the
/// result of the walk.
macro_rules! found {
    ($resume:expr) => {
        concat!(
            "
9:  lea rcx, [rax - {found}]           // the thread, without the `FOUND` tag
    pop r11                            // restore r11
    pop r10                            // restore r10
    btr dword ptr [rsp], 30            // test the saved direction flag and clear bit 30
    jnc 36f                            // it was clear
    std                                // restore the set direction flag
36: mov rsi, [rsp + {way_back}]        // the return address of the hook's call
    mov esi, [rsi - {id}]              // reload the function id from the hook's code
    lea rax, [rcx + {run_found}]       // the thread's run, which has the result of the walk
            ",
            $resume
        )
    };
}

/// The slow path on the private stack of the thread in rax. The callee-saved registers have their
/// values from the probe point again.
macro_rules! slow {
    () => {
        "
2:  mov [rax + {rbx}], rbx             // save rbx for the walk and because it is used below
    mov [rax + {rbp}], rbp             // save the frame pointer
    mov [rax + {r12}], r12             // save r12, which is used below
    mov [rax + {r12} + 8], r13         // save r13, which is used below
    mov [rax + {r12} + 16], r14        // save r14 for the walk
    mov [rax + {r12} + 24], r15        // save r15 for the walk
    mov [rax + {saved_rsp}], rsp       // save the program's stack pointer
    mov rbx, rax                       // keep the thread across calls
    lea r12, [rsp + {pushed}]          // the slot
    mov rcx, [rbx + {page}]            // the kernel's page that shows context switches
    test rcx, rcx                      // does the thread have a page?
    jz 81f                             // no: store 0
    mov ecx, [rcx + {lock}]            // the page's sequence number, which changes at a switch
    bts rcx, 32                        // set bit 32: the thread has a page
81: mov [rbx + {since_lock}], rcx      // keep it until the call has been measured
    rdtsc                              // read the clock: the overhead starts here
    shl rdx, 32                        // the high half of edx:eax
    or rax, rdx                        // the full counter
    mov [rbx + {since}], rax           // store the start of the overhead
    // Block signals before switching to the private stack. A handler must not run on that stack,
    // nor from the top of an alternate stack again because the thread seems to have left that one.
    lea rdi, [rbx + {signal_mask}]     // destination of the old mask
    call {block_signals}               // clobbers only caller-saved registers
    rdtsc                              // read the clock again
    shl rdx, 32                        // the high half of edx:eax
    or rax, rdx                        // the full counter
    sub rax, [rbx + {since}]           // ticks spent blocking signals
    mov [rbx + {blocking}], rax        // also the estimate for unblocking, after the last reading
    mov rsp, [rbx + {private_stack}]   // switch to the private stack
    mov rax, [rbx + {saved_rsp}]       // the stub's frame is on the program's stack
    mov rax, [rax + {way_back} + 16]   // the return address of the hook's call
    mov r13d, [rax - {id}]             // the function id from the hook's code
    sub rsp, {vectors}                 // space to save vector registers, clobbered from here on
    .irp i,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15
    movups [rsp + 16*\\i], xmm\\i      // save them in order, below `VECTORS`
    .endr
    mov rdi, rbx                       // first argument: the thread
    mov esi, r13d                      // second: the function id
    mov rdx, r12                       // third: the slot
    lea rcx, [rip + {trial}]           // fourth: the function with which the stubs are timed
    call {slow}                        // record the call
    .irp i,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15
    movups xmm\\i, [rsp + 16*\\i]      // restore the vector registers
    .endr
    // Switch back to the program's stack before unblocking signals and clearing the busy mark. If
    // signals cannot be blocked, handlers may use the thread as soon as the mark is clear.
    mov rsp, [rbx + {saved_rsp}]       // switch back to the program's stack
    lea rdi, [rbx + {signal_mask}]     // first argument of `restore_signals`: the old mask
    mov r12, [rbx + {r12}]             // restore r12; compiled code preserves r14 and r15
    mov r13, [rbx + {r12} + 8]         // restore r13
    mov rbp, [rbx + {rbp}]             // restore rbp, which the stub's work may change
    rdtsc                              // read the clock: the overhead ends here
    shl rdx, 32                        // the high half of edx:eax
    or rax, rdx                        // the full counter
    sub rax, [rbx + {since}]           // ticks since the last reading in `slow`
    add rax, [rbx + {blocking}]        // add the estimate for unblocking signals
    mov ecx, {most_of_end}             // longer than this means that the thread was preempted
    cmp rax, rcx                       // are the ticks above the limit?
    cmova rax, rcx                     // limit it
    mov rcx, [rbx + {overhead}]        // the thread's overhead counter
    add [rcx], rax                     // add the rest of this call's overhead
    mov rax, [rbx + {rbx}]             // keep the saved rbx until the thread is unused
    xor ecx, ecx                       // the default for the next call: 0
    xchg rcx, [rbx + {busy_after}]     // the next busy mark: 0, or a child may follow
    mov [rbx + {busy}], rcx            // set it; 0 lets the thread record again
    mov rbx, rax                       // restore rbx
    call {restore_signals}             // pending signals are delivered here
    jmp 4b                             // return to the trampoline
        "
    };
}

/// Aligns the next stub, and the section and thus this stub, to a cache line. Otherwise the cost of
/// a call changes with the size of other stubs.
macro_rules! align {
    () => {
        "
    .p2align 6
        "
    };
}

pub(crate) use {align, compiled, enter, found, prepare, restore, save, slow, verify};
