//! The lookup of a cached walk, which is a run of words, by its key.

/// Finds the run with the key (rdx, r8) whose words are all unchanged. Continues at label `27` with
/// the run in rax, or at `7` if there is none. The thread is in rcx.
macro_rules! find_run {
    () => {
        "
22: mov rax, r8                        // the second half of the key: function id and epoch
    rol rax, 32                        // swap halves: either may have the bits that differ
    xor rax, rdx                       // combine it with the first half, the slot
    movabs r9, {hash}                  // the multiplier of the hash
    imul rax, r9                       // hash the key
    shr rax, {memo_shift}              // the highest bits are the index of the first entry
    shl eax, {memo_entry_bits}         // convert the index to bytes
    lea rax, [rcx + rax + {memo}]      // the address of the first entry, relative to the thread
    lea r9, [rax + {memo_probes}]      // the end of the entries to probe
23: cmp [rax], rdx                     // does the first half of the key match?
    jne 24f                            // no: try the next entry
    cmp [rax + 8], r8                  // does the second half match?
    je 25f                             // yes: found
24: add rax, {memo_entry}              // the next entry
    cmp rax, r9                        // is it beyond the last?
    jne 23b                            // no: compare it
    jmp 7f                             // no cached walk

    // Compare the words with their values during the walk, four pairs of address and value a round.
25: mov r9, [rax + 24]                 // the record, fetched while the words are compared
    prefetchw [r9]                     // prefetch it for writing
    mov rax, [rax + 16]                // the run
    mov r9, [rax]                      // the end of its words
    lea r8, [rax + {run}]              // the start of its words
    cmp r8, r9                         // does it have any words?
    je 27f                             // no: they all match
26: mov rdi, [r8]                      // the first address
    mov rdx, [r8 + 8]                  // its value during the walk
    cmp [rdi], rdx                     // is the value unchanged?
    jne 28f                            // no: look for another run
    mov rdi, [r8 + 16]                 // the second address
    mov rdx, [r8 + 24]                 // its value during the walk
    cmp [rdi], rdx                     // is the value unchanged?
    jne 31f                            // no: look for another run
    mov rdi, [r8 + 32]                 // the third address
    mov rdx, [r8 + 40]                 // its value during the walk
    cmp [rdi], rdx                     // is the value unchanged?
    jne 32f                            // no: look for another run
    mov rdi, [r8 + 48]                 // the fourth address
    mov rdx, [r8 + 56]                 // its value during the walk
    cmp [rdi], rdx                     // is the value unchanged?
    jne 33f                            // no: look for another run
    add r8, 64                         // the next four pairs
    cmp r8, r9                         // is it the end of the words?
    jne 26b                            // no: compare them
        "
    };
}

/// Continues the lookup at a word that has changed.
macro_rules! next_run {
    () => {
        "
    // Another run may branch off here. Its key is the address of the pair and the word's new value.
33: add r8, 16                         // from the third pair to the fourth
32: add r8, 16                         // from the second pair to the third
31: add r8, 16                         // from the first pair to the second
28: mov rdx, r8                        // first half of the key: the address of the pair
    mov r8, [rdi]                      // second half: the word's new value
    jmp 22b                            // look up that run
        "
    };
}

pub(crate) use {find_run, next_run};
