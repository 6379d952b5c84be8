//! An entry whose walk is remembered.

/// An entry.
macro_rules! entry {
    () => {
        concat!(
            $crate::probe::quick::thread::alive!(),
            "
    lea rdi, [rip + {probes}]
    cmp dword ptr [rdi + 8*rsi], 0     // is the function in? Its generation is 0 else.
    je 5f
    cmp byte ptr [rdi + 8*rsi + {kind}], {call} // more than measured, or something else
    ja 6f
            ",
            $crate::probe::quick::thread::find_thread!(),
            $crate::probe::quick::thread::mark!(),
            "
    cmp rdx, [rcx + {low}]             // on the stack that it was on last?
    jb 7f
    cmp rdx, [rcx + {high}]
    jae 7f
    mov [rcx + {entry_rbp}], rbp       // a remembered walk may compare it as a word
    mov r8, [rip + {epoch}]            // walks of another epoch do not count:
    or r8, rsi                         // the key has both, and the slot
            ",
            $crate::probe::quick::run::find_run!(),
            "
    // All are equal: rax is the run.
27: inc qword ptr [rcx + {quick_calls}]
    mov r8, [rcx + {overhead}]         // the thread's own clock stays behind by what it takes to measure the call
    mov r9, [rax + {run_cost}]
    add [r8], r9
    lea rdi, [rip + {probes}]
    cmp byte ptr [rdi + 8*rsi + {kind}], {call}
    mov rdx, [rax + {run_record}]      // the record of the path
    je 29f
    xor r8d, r8d                       // no activation
    cmp word ptr [rdx + {schema}], r8w // nothing but a count is wanted?
    jne 37f
    inc qword ptr [rdx + {entered}]
            ",
            $crate::probe::quick::thread::done!(),
            $crate::probe::quick::run::next_run!(),
            "
    // An activation on top of the list.
29: mov r8, [rcx + {top}]              // the innermost until now
    mov rax, [rax + {run_stack}]       // which stack this one is on
    lea r9, [rsp + {slot}]             // its slot
    cmp [r8 + {stack}], rax            // the same stack?
    jne 34f
    cmp [r8 + {at}], r9                // further out? Else that one has been left behind.
    jbe 7f
30: mov r8, [r8 + {next}]              // the one to take
    test r8, r8                        // none: more must be made
    jz 7f
    mov [r8 + {at}], r9
    mov [r8 + {stack}], rax
    mov qword ptr [r8 + {nested}], 0
    mov [r8 + {record}], rdx
    mov [r8 + {function}], esi
    mov eax, [rdi + 8*rsi]             // the function's generation
    mov [r8 + {generation}], eax
    mov r9, [rcx + {depths}]
    xor eax, eax
    cmp dword ptr [r9 + 4*rsi], 1      // carry where no call of it is open
    adc eax, 0
    mov [r8 + {outermost}], eax
    inc dword ptr [r9 + 4*rsi]         // one more is
    mov [rcx + {top}], r8
    cmp word ptr [rdx + {schema}], {wall} // is there more to read than the clock?
    jne 37f
    inc qword ptr [rdx + {entered}]
    mov rdi, [rcx + {overhead}]
    mov rdi, [rdi]
    and rdi, [rip + {parameters} + {corrects}]
    sub rdi, [rip + {costs} + {inside}] // what falls into the call's own time is not the call's
    rdtsc                              // the clock last
    shl rdx, 32
    or rax, rdx
    sub rax, rdi
    mov [r8 + {start}], rax
            ",
            $crate::probe::quick::thread::done!(),
            "
    // Another stack than that of the last call.
34: cmp dword ptr [rip + {coroutines}], 0
    je 30b                             // a handler's, or a path without its root
    jmp 7f
            ",
            $crate::probe::quick::thread::out_of_line!()
        )
    };
}

pub(crate) use entry;
