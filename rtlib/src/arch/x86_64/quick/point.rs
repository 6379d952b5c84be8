//! A point with a cached walk.

/// A point. The stack position that is the slot at an entry is only the stub's start here, below
/// the red zone. The row of the point has the location of the function's own slot.
macro_rules! point {
    () => {
        concat!(
            $crate::arch::x86_64::quick::thread::alive!(),
            "
    lea rdi, [rip + {probes}]          // the probe table, with 8 bytes per point
    cmp dword ptr [rdi + 8*rsi], 0     // the generation; 0 if the point is not instrumented
    je 5f                              // not instrumented: ignore the pass
            ",
            $crate::arch::x86_64::quick::thread::find_thread!(),
            $crate::arch::x86_64::quick::thread::mark!(),
            $crate::arch::x86_64::quick::point::frame!(by_number),
            $crate::arch::x86_64::quick::run::find_run!(),
            "
    // All words match. rax is the run.
27: inc qword ptr [rcx + {quick_calls}] // count a call with a cached walk
    mov r8, [rcx + {overhead}]         // the thread's overhead counter
    mov r9, [rax + {run_cost}]         // the cost of this count, in ticks
    add [r8], r9                       // add it to the thread's overhead
    mov rdx, [rax + {run_record}]      // the record of the call path
    inc qword ptr [rdx + {entered}]    // count the pass
            ",
            $crate::arch::x86_64::quick::thread::done!(),
            $crate::arch::x86_64::quick::run::next_run!(),
            $crate::arch::x86_64::quick::thread::out_of_line!()
        )
    };
}

/// Loads the slot of the function's frame into rdx, and the id with the epoch into r8. They are the
/// key of the cached walk. Stores the frame pointer of the function's caller for it. Jumps to `7`
/// if the slot is not on the thread's stack. `$location` loads the location of the frame.
macro_rules! frame {
    ($location:ident) => {
        concat!(
            "
    cmp rdx, [rcx + {low}]             // below the low end of the last known stack?
    jb 7f                              // yes: another stack
            ",
            $crate::arch::x86_64::quick::point::$location!("r8", "rdi"),
            "
    lea rdx, [rsp + {slot} + {red_zone}] // the stack pointer at the point
    test r8b, {by_rbp}                 // is the slot relative to the frame pointer?
    cmovnz rdx, rbp                    // yes: use rbp instead
    mov rax, r8                        // copy the location
    sar rax, {slot_shift}              // the signed distance to the slot, in the upper half
    add rdx, rax                       // the slot
    test dl, 7                         // is it aligned to a word?
    jnz 7f                             // no: not a slot
    cmp rdx, rsp                       // is it at or above the stack pointer?
    jb 7f                              // no: another stack
    cmp rdx, [rcx + {high}]            // is it at or above the high end of the stack?
    jae 7f                             // yes: another stack
    mov r9, rbp                        // the caller's frame pointer, if it is still in rbp
    shr r8d, {rbp_shift}               // the location of the caller's frame pointer
    movzx eax, r8b                     // words from the slot down to its saved copy
    test eax, eax                      // 0 if it is still in rbp
    jz 8f                              // use rbp
    shl eax, 3                         // convert words to bytes
    mov r9, rdx                        // start at the slot
    sub r9, rax                        // the address of the saved copy
    cmp r9, rsp                        // is it at or above the stack pointer?
    jb 7f                              // no: not in the frame
    mov r9, [r9]                       // load the caller's frame pointer
8:  mov [rcx + {entry_rbp}], r9        // a cached walk may compare it as one of its words
    mov r8, [rip + {epoch}]            // the epoch, so that walks of earlier epochs do not match
    or r8, rsi                         // add the point id; the slot is the other half of the key
            "
        )
    };
}

/// Loads the location of the frame at the point or span esi into the register `$to`. Changes the
/// register `$other`.
macro_rules! by_number {
    ($to:literal, $other:literal) => {
        concat!(
            "
    lea ",
            $other,
            ", [rip + {details}] // the table of frame locations, 8 bytes per point
    mov ",
            $to,
            ", [",
            $other,
            " + 8*rsi] // the location of the frame
            "
        )
    };
}

/// Loads the location of the frame at the hook of a timed path into the register `$to`. Changes the
/// register `$other`. An instruction behind the hook's call has the distance to the hook's row.
macro_rules! by_hook {
    ($to:literal, $other:literal) => {
        concat!(
            "
    mov ",
            $other,
            ", [rsp + {way_back}] // the return address of the hook's call
    movsxd ",
            $to,
            ", dword ptr [",
            $other,
            " + {to_row}] // the distance from the end of this operand to the row
    mov ",
            $to,
            ", [",
            $other,
            " + ",
            $to,
            " + {to_row} + 4 + {standing}] // the location of the frame
            "
        )
    };
}

pub(crate) use {by_hook, by_number, frame, point};
