//! The lookup of the calling thread and its busy mark, and the ways out if these fail.

/// Jumps to label `5` in a forked child and after the end of the session.
macro_rules! alive {
    () => {
        "
    cmp dword ptr [rip + {alive}], {alive_word} // zeroed in a forked child
    jne 5f                             // no session: ignore the call
        "
    };
}

/// The check of `alive!`, for a return. Jumps to label `6` in a forked child and after the end of
/// the session, because the return may be that of a child.
macro_rules! alive_or_child {
    () => {
        "
    cmp dword ptr [rip + {alive}], {alive_word} // zeroed in a forked child
    jne 6f                             // no session: use compiled code
        "
    };
}

/// Loads the calling thread into rcx, and the slot into rdx. Jumps to `6` if the thread is not
/// found.
macro_rules! find_thread {
    () => {
        "
    cmp dword ptr [rip + {parameters} + {rdfsbase}], 0 // can the FS base be read from its register?
    jne 20f                            // yes: use rdfsbase
    mov rdx, fs:[0]                    // the control block starts with its own address
21: movabs rax, {hash}                 // the multiplier of the registry's hash
    imul rax, rdx                      // hash the FS base
    shr rax, {registry_shift}          // the highest bits are the index of the entry
    shl eax, 4                         // the index times 16 bytes per entry
    lea rcx, [rip + {registry}]        // the registry
    add rcx, rax                       // the address of the entry
    inc rdx                            // entries store the FS base plus 1
    cmp [rcx], rdx                     // does the entry belong to this thread?
    jne 6f                             // no: compiled code searches the following entries
    mov rcx, [rcx + 8]                 // the thread
    test rcx, rcx                      // null while the thread is being registered
    jz 6f                              // null: compiled code waits
    mov rax, [rcx + {tid_from_fs}]     // offset of the thread id from the FS base
    mov eax, [rdx + rax - 1]           // the thread id; rdx is the FS base plus 1
    cmp eax, [rcx + {tid}]             // is the registered thread the running one?
    jne 6f                             // no, the FS base was reused: compiled code registers it
    lea rdx, [rsp + {slot}]            // the slot
        "
    };
}

/// Marks the thread rcx busy with the call at the slot rdx. Jumps to `6` if it is busy already.
macro_rules! mark {
    () => {
        "
    xor eax, eax                       // expect a mark of 0
    cmpxchg [rcx + {busy}], rdx        // set the mark; one instruction, safe from handlers
    jne 6f                             // already busy: use compiled code
        "
    };
}

/// Clears the thread's busy mark and ends the stub.
macro_rules! done {
    () => {
        "
    mov qword ptr [rcx + {busy}], 0    // not busy: handlers may record again
    jmp 5f                             // return to the trampoline
        "
    };
}

/// Clears the thread's busy mark and ends the stub as `done!` does, from code after the end of the
/// stub.
macro_rules! done_behind {
    () => {
        "
    mov qword ptr [rcx + {busy}], 0    // not busy: handlers may record again
    jmp 5b                             // return to the trampoline
        "
    };
}

/// Code off the main path: reads the FS base from its register, and leaves with nothing done.
macro_rules! out_of_line {
    () => {
        "
20: rdfsbase rdx                       // read the FS base from its register
    jmp 21b                            // continue with the lookup
7:  mov qword ptr [rcx + {busy}], 0    // not busy: continue in compiled code
6:
        "
    };
}

/// Reads the clock into rdi, in ticks, after all earlier instructions: `rdtsc` alone does not wait
/// for the results of the function that ends (Intel SDM volume 2, RDTSC). Section
/// [`abi::image::FENCES`] contains the address of the `lfence`. The command replaces it if exits
/// must not wait.
macro_rules! now {
    () => {
        "
98: lfence                             // wait for all earlier instructions
    .pushsection ipath_fences, \"\", @progbits
    .quad 98b
    .popsection
    rdtsc                              // read the clock into edx:eax
    shl rdx, 32                        // the high half of edx:eax
    lea rdi, [rax + rdx]               // the full counter
        "
    };
}

pub(crate) use {alive, alive_or_child, done, done_behind, find_thread, mark, now, out_of_line};
