//! An entry whose walk is remembered, of a call that is counted or whose time is measured; and what else there may be to it.

/// An entry.
macro_rules! entry {
    () => {
        concat!(
            $crate::arch::x86_64::quick::thread::alive!(),
            "
    lea rdi, [rip + {probes}]
    cmp dword ptr [rdi + 8*rsi], 0     // is the function in? Its generation is 0 else.
    je 5f
    cmp byte ptr [rdi + 8*rsi + {kind}], {call} // more than measured, or something else
    ja 6f
            ",
            $crate::arch::x86_64::quick::thread::find_thread!(),
            $crate::arch::x86_64::quick::thread::mark!(),
            "
    cmp rdx, [rcx + {low}]             // on the stack that it was on last?
    jb 7f
    cmp rdx, [rcx + {high}]
    jae 7f
    mov [rcx + {entry_rbp}], rbp       // a remembered walk may compare it as a word
    mov r8, [rip + {epoch}]            // walks of another epoch do not count:
    or r8, rsi                         // the key has both, and the slot
            ",
            $crate::arch::x86_64::quick::run::find_run!(),
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
    cmp byte ptr [rdx + {way}], {counted} // nothing but a count is wanted?
    jne 37f
    inc qword ptr [rdx + {entered}]
            ",
            $crate::arch::x86_64::quick::thread::done!(),
            $crate::arch::x86_64::quick::run::next_run!(),
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
    cmp byte ptr [rdx + {way}], {timed} // is there more to read than the clock?
    jne 38f
35: inc qword ptr [rdx + {entered}]
            ",
            $crate::arch::x86_64::quick::entry::own_clock!("inside"), // the clock last
            "
    sub rax, rdi
    mov [r8 + {start}], rax
            ",
            $crate::arch::x86_64::quick::thread::done!(),
            "
    // Another stack than that of the last call.
34: cmp dword ptr [rip + {coroutines}], 0
    je 30b                             // a handler's, or a path without its root
    jmp 7f
            ",
            $crate::arch::x86_64::quick::thread::out_of_line!()
        )
    };
}

/// What a count (label `37`) or a time (label `38`) alone do not need, of a call of the function esi with the record rdx, with
/// the activation r8 where it is timed. What falls off the end is done in compiled code, with nothing done yet.
macro_rules! more {
    () => {
        concat!(
            "
37: movzx edi, byte ptr [rdx + {way}]
    sub edi, {argument}                // the argument's number
    cmp edi, {ret}
    jae 39f
            ",
            $crate::arch::x86_64::quick::entry::argument!(),
            $crate::arch::x86_64::quick::value::value!(alone, "39f"),
            "
    inc dword ptr [rdx + {sequence}]   // even: whole
    inc qword ptr [rdx + {entered}]
            ",
            $crate::arch::x86_64::quick::thread::done_behind!(),
            $crate::arch::x86_64::quick::value::narrow!("39f"),
            "
38: movzx edi, byte ptr [rdx + {way}]
    sub edi, {timed_argument}
    jb 72f
    mov r9d, edi
            ",
            // First: it would wait for the addresses of the column.
            $crate::arch::x86_64::quick::entry::own_clock!("inside_argument"),
            "
    sub rax, rdi
    mov [r8 + {start}], rax
    mov rdx, [r8 + {record}]
    mov edi, r9d
            ",
            $crate::arch::x86_64::quick::entry::argument!(),
            $crate::arch::x86_64::quick::value::value!(timed, "39f"),
            "
    inc dword ptr [rdx + {sequence}]
    inc qword ptr [rdx + {entered}]
            ",
            $crate::arch::x86_64::quick::thread::done_behind!(),
            $crate::arch::x86_64::quick::value::narrow!("39f"),
            "
72: cmp edi, {timed_result} - {timed_argument}
    je 35b                             // it is read when the call ends
    cmp edi, {steady} - {timed_argument}
    jne 39f

    // The clock, and what the thread's CPU time is behind it, as long as the thread is not switched out.
    mov r9, [rcx + {page}]
    test r9, r9
    jz 39f
    mov qword ptr [r8 + {nested_cpu}], 0
    mov rdi, [rcx + {cpu_offset}]
    mov [r8 + {ahead}], rdi
            ",
            $crate::arch::x86_64::quick::entry::own_clock!("inside_steady"),
            "
    mov rdx, rax
    sub rax, rdi
    mov [r8 + {start}], rax
    sub rdx, [rcx + {cpu_asked}]       // has the kernel been asked not so long ago,
    cmp rdx, {fresh}
    mov rdx, [r8 + {record}]
    jae 39f
    mov eax, [r9 + {lock}]             // and the thread not been switched out since, up to the reading of the clock?
    bts rax, 32
    cmp rax, [rcx + {cpu_lock}]
    jne 39f
    inc qword ptr [rdx + {entered}]
            ",
            $crate::arch::x86_64::quick::thread::done_behind!(),
            "
39:
            "
        )
    };
}

/// The clock into rax, and into rdi by how much the start by the thread's own clock is before that: what measuring has
/// taken until now, without the cost `$inside`, which falls into the call's own time and is not the call's. rdx is lost.
macro_rules! own_clock {
    ($inside:literal) => {
        concat!(
            "
    mov rdi, [rcx + {overhead}]
    mov rdi, [rdi]
    and rdi, [rip + {parameters} + {corrects}]
    sub rdi, [rip + {costs} + {",
            $inside,
            "}]
    rdtsc
    shl rdx, 32
    or rax, rdx
            "
        )
    };
}

/// The argument edi of the function esi into rdi, by label `61`; what is not all of a register is narrowed before that.
macro_rules! argument {
    () => {
        "
    test dword ptr [rdx + {entered}], {full} // now and then, and the first time, there is more to do
    jz 39f
    lea r9, [rip + {details}]
    lea r9, [r9 + 8*rsi]
    movzx r9d, byte ptr [r9 + rdi]     // where the function has it
    mov edi, r9d
    and edi, {register}
    mov rdi, [rsp + 8*rdi + {arguments}]
    cmp r9d, {register}
    ja 60f
61:
        "
    };
}

pub(crate) use {argument, entry, more, own_clock};
