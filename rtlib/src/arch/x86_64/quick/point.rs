//! A point whose walk is remembered.

/// A point. What is the slot for entries is here no more than where the stub has begun on the stack, below the red zone;
/// the function's own slot is where the row says that its frame is.
macro_rules! point {
    () => {
        concat!(
            $crate::arch::x86_64::quick::thread::alive!(),
            "
    lea rdi, [rip + {probes}]          // a row of 8 bytes for each point, the generation first
    cmp dword ptr [rdi + 8*rsi], 0     // is the point in? Its generation is 0 else.
    je 5f                              // out: not counted
            ",
            $crate::arch::x86_64::quick::thread::find_thread!(),
            $crate::arch::x86_64::quick::thread::mark!(),
            "
    cmp rdx, [rcx + {low}]             // on the stack that it was on last?
    jb 7f                              // below: another stack
    lea rdi, [rip + {details}]         // a word for each point
    mov r8, [rdi + 8*rsi]              // where the frame is
    lea rdx, [rsp + {slot} + {red_zone}] // counted from the stack pointer
    test r8b, {by_rbp}                 // counted from the frame pointer?
    cmovnz rdx, rbp                    // or from rbp
    mov rax, r8                        // the distance to the slot
    sar rax, {slot_shift}              // is the word's upper half, signed
    add rdx, rax                       // the slot
    test dl, 7                         // aligned to a word?
    jnz 7f                             // not a slot
    cmp rdx, rsp                       // it is on this stack, too
    jb 7f                              // below the stack pointer: another stack
    cmp rdx, [rcx + {high}]            // the end of the stack
    jae 7f                             // above: another stack
    mov r9, rbp                        // what rbp was at the entry
    shr r8d, {rbp_shift}               // the place of the caller's frame pointer
    movzx eax, r8b                     // words down to where that has been saved
    test eax, eax                      // 0: in its register
    jz 8f                              // as it is
    shl eax, 3                         // in bytes
    mov r9, rdx                        // down
    sub r9, rax                        // from the slot
    cmp r9, rsp                        // on this stack?
    jb 7f                              // no
    mov r9, [r9]                       // the caller's frame pointer
8:  mov [rcx + {entry_rbp}], r9        // a remembered walk may compare it as a word
    mov r8, [rip + {epoch}]            // walks of another epoch do not count:
    or r8, rsi                         // the key has both, and the slot
            ",
            $crate::arch::x86_64::quick::run::find_run!(),
            "
    // All are equal: rax is the run.
27: inc qword ptr [rcx + {quick_calls}] // one more call that the stub has recorded
    mov r8, [rcx + {overhead}]         // the thread's own clock stays behind by what it takes to count it
    mov r9, [rax + {run_cost}]         // ticks that it takes,
    add [r8], r9                       // added to those of the thread
    mov rdx, [rax + {run_record}]      // the record of the path
    inc qword ptr [rdx + {entered}]    // one more pass
            ",
            $crate::arch::x86_64::quick::thread::done!(),
            $crate::arch::x86_64::quick::run::next_run!(),
            $crate::arch::x86_64::quick::thread::out_of_line!()
        )
    };
}

pub(crate) use point;
