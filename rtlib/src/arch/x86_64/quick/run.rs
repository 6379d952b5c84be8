//! A remembered walk, a run of words, that is found by its key.

/// The run whose key is (rdx, r8) into rax, all of whose words are what they were, from label `27` on; to `7` where
/// there is none. The thread is in rcx.
macro_rules! find_run {
    () => {
        "
22: mov rax, r8                        // the key: the function and the epoch,
    rol rax, 32                        // the halves changed, since what differs is in either
    xor rax, rdx                       // and the slot
    movabs r9, {hash}                  // spread over
    imul rax, r9                       // the highest bits
    shr rax, {memo_shift}              // the first place it can be in
    shl eax, {memo_entry_bits}         // in bytes
    lea rax, [rcx + rax + {memo}]      // the table is that far from the thread
    lea r9, [rax + {memo_probes}]      // and the end of those
23: cmp [rax], rdx                     // the slot's half of the key?
    jne 24f                            // another key
    cmp [rax + 8], r8                  // the other half?
    je 25f                             // found
24: add rax, {memo_entry}              // the next place
    cmp rax, r9                        // was it the last?
    jne 23b                            // no
    jmp 7f                             // not remembered

    // Its words, each where the walk has read it: four pairs of address and value at a time.
25: mov r9, [rax + 24]                 // the record that it leads to: it comes while the words are compared
    prefetchw [r9]                     // to be written to
    mov rax, [rax + 16]                // the run
    mov r9, [rax]                      // where its words end
    lea r8, [rax + {run}]              // where they begin
    cmp r8, r9                         // it may have none
    je 27f                             // then all are equal
26: mov rdi, [r8]                      // an address
    mov rdx, [r8 + 8]                  // what was there
    cmp [rdi], rdx                     // and is
    jne 28f                            // another one: there is another run, perhaps
    mov rdi, [r8 + 16]                 // the second
    mov rdx, [r8 + 24]                 // what was there
    cmp [rdi], rdx                     // and is
    jne 31f                            // as above
    mov rdi, [r8 + 32]                 // the third
    mov rdx, [r8 + 40]                 // what was there
    cmp [rdi], rdx                     // and is
    jne 32f                            // as above
    mov rdi, [r8 + 48]                 // the fourth
    mov rdx, [r8 + 56]                 // what was there
    cmp [rdi], rdx                     // and is
    jne 33f                            // as above
    add r8, 64                         // the next four pairs
    cmp r8, r9                         // the end?
    jne 26b                            // no
        "
    };
}

/// Where one of its words is another one.
macro_rules! next_run {
    () => {
        "
    // Another run branches off there: its key is the word's place and what it is now.
33: add r8, 16                         // the fourth pair
32: add r8, 16                         // the third
31: add r8, 16                         // the second
28: mov rdx, r8                        // the key's first half: the word's place
    mov r8, [rdi]                      // the other half: what the word is
    jmp 22b                            // look that up
        "
    };
}

pub(crate) use {find_run, next_run};
