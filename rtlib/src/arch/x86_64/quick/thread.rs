//! The calling thread, marked busy with the call; and ways out for all that can go wrong with that.

/// To label `5` in a forked child, and where the session is over.
macro_rules! alive {
    () => {
        "
    cmp dword ptr [rip + {alive}], {alive_word} // wiped in a forked child
    jne 5f                             // out: not recorded
        "
    };
}

/// The same at a return: to `6`, since a child may come out of it.
macro_rules! alive_or_child {
    () => {
        "
    cmp dword ptr [rip + {alive}], {alive_word} // wiped in a forked child
    jne 6f                             // compiled code sees to that
        "
    };
}

/// The thread into rcx, with the slot in rdx; to `6` where it is not found so.
macro_rules! find_thread {
    () => {
        "
    cmp dword ptr [rip + {parameters} + {rdfsbase}], 0 // does a word tell the FS base?
    jne 20f                            // its register does
    mov rdx, fs:[0]                    // it is that word itself
21: movabs rax, {hash}                 // its place in the registry: the product's highest bits
    imul rax, rdx                      // spread over
    shr rax, {registry_shift}          // the place's number
    shl eax, 4                         // 16 bytes each
    lea rcx, [rip + {registry}]        // the table
    add rcx, rax                       // the place
    inc rdx                            // entries have one more than the FS base
    cmp [rcx], rdx                     // is it this thread's? Else it may be in the next ones.
    jne 6f                             // compiled code looks there
    mov rcx, [rcx + 8]                 // the thread
    test rcx, rcx                      // none yet: it is being made known
    jz 6f                              // compiled code waits
    mov rax, [rcx + {tid_from_fs}]     // its id, in its control block or in the thread itself
    mov eax, [rdx + rax - 1]           // rdx is the FS base and one
    cmp eax, [rcx + {tid}]             // another thread has the FS base now
    jne 6f                             // compiled code makes it known again
    lea rdx, [rsp + {slot}]            // the slot
        "
    };
}

/// Marks the thread rcx busy with the call at the slot rdx; to `6` where it is already.
macro_rules! mark {
    () => {
        "
    xor eax, eax                       // from 0, in one instruction: a handler
    cmpxchg [rcx + {busy}], rdx        // may come before it or after it
    jne 6f                             // compiled code sees to that
        "
    };
}

/// Ends that, and the call.
macro_rules! done {
    () => {
        "
    mov qword ptr [rcx + {busy}], 0    // handlers may record again
    jmp 5f                             // to the end of the stub
        "
    };
}

/// The same, behind the end of the stub.
macro_rules! done_behind {
    () => {
        "
    mov qword ptr [rcx + {busy}], 0    // handlers may record again
    jmp 5b                             // to the end of the stub
        "
    };
}

/// Out of the way: the FS base where no word tells it, and back out with nothing done.
macro_rules! out_of_line {
    () => {
        "
20: rdfsbase rdx                       // the FS base, from the register
    jmp 21b                            // on with it
7:  mov qword ptr [rcx + {busy}], 0    // not busy any more: on in compiled code
6:
        "
    };
}

/// The time into rdi, once all before it has been done: `rdtsc` alone does not wait for what the function that ends is still
/// computing (Intel SDM volume 2, RDTSC). Section [`abi::image::FENCES`] has the address of the `lfence`: the command
/// replaces it where exits are not to wait.
macro_rules! now {
    () => {
        "
98: lfence                             // all before has been done
    .pushsection ipath_fences, \"\", @progbits
    .quad 98b
    .popsection
    rdtsc                              // edx:eax
    shl rdx, 32                        // edx:eax
    lea rdi, [rax + rdx]               // is one number, in rdi
        "
    };
}

pub(crate) use {alive, alive_or_child, done, done_behind, find_thread, mark, now, out_of_line};
