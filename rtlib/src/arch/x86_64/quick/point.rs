//! A point whose walk is remembered.

/// A point. What is the slot for entries is here no more than where the stub has begun on the stack, below the red zone;
/// the function's own slot is where the row says that its frame is.
macro_rules! point {
    () => {
        concat!(
            $crate::arch::x86_64::quick::thread::alive!(),
            "
    lea rdi, [rip + {probes}]
    cmp dword ptr [rdi + 8*rsi], 0     // is the point in? Its generation is 0 else.
    je 5f
            ",
            $crate::arch::x86_64::quick::thread::find_thread!(),
            $crate::arch::x86_64::quick::thread::mark!(),
            "
    cmp rdx, [rcx + {low}]             // on the stack that it was on last?
    jb 7f
    lea rdi, [rip + {details}]
    mov r8, [rdi + 8*rsi]              // where the frame is
    lea rdx, [rsp + {slot} + {red_zone}] // counted from the stack pointer
    test r8b, {by_rbp}
    cmovnz rdx, rbp                    // or from rbp
    mov rax, r8
    sar rax, {slot_shift}
    add rdx, rax                       // the slot
    test dl, 7
    jnz 7f
    cmp rdx, rsp                       // it is on this stack, too
    jb 7f
    cmp rdx, [rcx + {high}]
    jae 7f
    mov r9, rbp                        // what rbp was at the entry
    shr r8d, {rbp_shift}
    movzx eax, r8b                     // words down to where that has been saved
    test eax, eax
    jz 8f
    shl eax, 3
    mov r9, rdx
    sub r9, rax
    cmp r9, rsp
    jb 7f
    mov r9, [r9]
8:  mov [rcx + {entry_rbp}], r9        // a remembered walk may compare it as a word
    mov r8, [rip + {epoch}]            // walks of another epoch do not count:
    or r8, rsi                         // the key has both, and the slot
            ",
            $crate::arch::x86_64::quick::run::find_run!(),
            "
    // All are equal: rax is the run.
27: inc qword ptr [rcx + {quick_calls}]
    mov r8, [rcx + {overhead}]         // the thread's own clock stays behind by what it takes to count it
    mov r9, [rax + {run_cost}]
    add [r8], r9
    mov rdx, [rax + {run_record}]      // the record of the path
    inc qword ptr [rdx + {entered}]
            ",
            $crate::arch::x86_64::quick::thread::done!(),
            $crate::arch::x86_64::quick::run::next_run!(),
            $crate::arch::x86_64::quick::thread::out_of_line!()
        )
    };
}

pub(crate) use point;
