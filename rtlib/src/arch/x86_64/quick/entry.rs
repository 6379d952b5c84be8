//! An entry whose walk is remembered, of a call that is counted or whose time is measured; and what else there may be to it.

/// An entry.
macro_rules! entry {
    () => {
        concat!(
            $crate::arch::x86_64::quick::thread::alive!(),
            "
    lea rdi, [rip + {probes}]          // a row of 8 bytes for each function, the generation first
    cmp dword ptr [rdi + 8*rsi], 0     // is the function in? Its generation is 0 else.
    je 5f                              // out: not recorded
    cmp byte ptr [rdi + 8*rsi + {kind}], {call} // more than measured, or something else
    ja 6f                              // compiled code sees to that
            ",
            $crate::arch::x86_64::quick::thread::find_thread!(),
            $crate::arch::x86_64::quick::thread::mark!(),
            "
    cmp rdx, [rcx + {low}]             // on the stack that it was on last?
    jb 7f                              // below: another stack
    cmp rdx, [rcx + {high}]            // its end
    jae 7f                             // above: another stack
    mov [rcx + {entry_rbp}], rbp       // a remembered walk may compare it as a word
    mov r8, [rip + {epoch}]            // walks of another epoch do not count:
    or r8, rsi                         // the key has both, and the slot
            ",
            $crate::arch::x86_64::quick::run::find_run!(),
            "
    // All are equal: rax is the run.
27: inc qword ptr [rcx + {quick_calls}] // one more call that the stub has recorded
    mov r8, [rcx + {overhead}]         // the thread's own clock stays behind by what it takes to measure the call
    mov r9, [rax + {run_cost}]         // ticks that it takes,
    add [r8], r9                       // added to those of the thread
    lea rdi, [rip + {probes}]          // the row again
    cmp byte ptr [rdi + 8*rsi + {kind}], {call} // timed, or counted alone?
    mov rdx, [rax + {run_record}]      // the record of the path
    je 29f                             // timed: an activation
    xor r8d, r8d                       // no activation
    cmp byte ptr [rdx + {way}], {counted} // nothing but a count is wanted?
    jne 37f                            // a column to add to, besides
    inc qword ptr [rdx + {entered}]    // one more call
            ",
            $crate::arch::x86_64::quick::thread::done!(),
            $crate::arch::x86_64::quick::run::next_run!(),
            "
    // An activation on top of the list.
29: mov r8, [rcx + {top}]              // the innermost until now
    mov rax, [rax + {run_stack}]       // which stack this one is on
    lea r9, [rsp + {slot}]             // its slot
    cmp [r8 + {stack}], rax            // the same stack?
    jne 34f                            // another one
    cmp [r8 + {at}], r9                // further out? Else that one has been left behind.
    jbe 7f                             // compiled code ends that
30: mov r8, [r8 + {next}]              // the one to take
    test r8, r8                        // none: more must be made
    jz 7f                              // compiled code makes them
    mov [r8 + {at}], r9                // the new one is of this call,
    mov [r8 + {stack}], rax            // on this stack,
    mov qword ptr [r8 + {nested}], 0   // with no measured callee yet,
    mov [r8 + {record}], rdx           // of this path
    mov [r8 + {function}], esi         // and function
    mov eax, [rdi + 8*rsi]             // the function's generation
    mov [r8 + {generation}], eax       // of this generation
    mov r9, [rcx + {depths}]           // open calls by function
    xor eax, eax                       // outermost = 0, and
    cmp dword ptr [r9 + 4*rsi], 1      // carry where no call of it is open
    adc eax, 0                         // 1 with the carry
    mov [r8 + {outermost}], eax        // no call of the function is around it
    inc dword ptr [r9 + 4*rsi]         // one more is
    mov [rcx + {top}], r8              // the innermost now
    cmp byte ptr [rdx + {way}], {timed} // is there more to read than the clock?
    jne 38f                            // an argument, or another clock
35: inc qword ptr [rdx + {entered}]    // one more call
            ",
            $crate::arch::x86_64::quick::entry::own_clock!("inside"), // the clock last
            "
    sub rax, rdi                       // the start by the thread's own clock
    mov [r8 + {start}], rax            // to be taken off at the exit
            ",
            $crate::arch::x86_64::quick::thread::done!(),
            "
    // Another stack than that of the last call.
34: cmp dword ptr [rip + {coroutines}], 0 // has the program coroutines?
    je 30b                             // a handler's, or a path without its root
    jmp 7f                             // the walk may belong to one: compiled code finds out
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
37: movzx edi, byte ptr [rdx + {way}]  // the way of the record,
    sub edi, {argument}                // the argument's number
    cmp edi, {ret}                     // above the arguments?
    jae 39f                            // compiled code sees to that
            ",
            $crate::arch::x86_64::quick::entry::argument!(),
            $crate::arch::x86_64::quick::value::value!(alone, "39f"),
            "
    inc dword ptr [rdx + {sequence}]   // even: whole
    inc qword ptr [rdx + {entered}]    // one more call
            ",
            $crate::arch::x86_64::quick::thread::done_behind!(),
            $crate::arch::x86_64::quick::value::narrow!("39f"),
            "
38: movzx edi, byte ptr [rdx + {way}]  // the way of the record,
    sub edi, {timed_argument}          // counted from the timed arguments
    jb 72f                             // below: no argument
    mov r9d, edi                       // the argument's number, kept over the clock
            ",
            // First: it would wait for the addresses of the column.
            $crate::arch::x86_64::quick::entry::own_clock!("inside_argument"),
            "
    sub rax, rdi                       // the start by the thread's own clock
    mov [r8 + {start}], rax            // to be taken off at the exit
    mov rdx, [r8 + {record}]           // the record again
    mov edi, r9d                       // the number again
            ",
            $crate::arch::x86_64::quick::entry::argument!(),
            $crate::arch::x86_64::quick::value::value!(timed, "39f"),
            "
    inc dword ptr [rdx + {sequence}]   // even: whole
    inc qword ptr [rdx + {entered}]    // one more call
            ",
            $crate::arch::x86_64::quick::thread::done_behind!(),
            $crate::arch::x86_64::quick::value::narrow!("39f"),
            "
72: cmp edi, {timed_result} - {timed_argument} // a result?
    je 35b                             // it is read when the call ends
    cmp edi, {steady} - {timed_argument} // CPU time from the same clock?
    jne 39f                            // another source: compiled code reads it

    // The clock, and what the thread's CPU time is behind it, as long as the thread is not switched out.
    mov r9, [rcx + {page}]             // the page where the kernel counts switches
    test r9, r9                        // is there one?
    jz 39f                             // compiled code reads CPU time
    mov qword ptr [r8 + {nested_cpu}], 0 // no measured callee yet
    mov rdi, [rcx + {cpu_offset}]      // how far CPU time is behind the clock
    mov [r8 + {ahead}], rdi            // at the start of the call
            ",
            $crate::arch::x86_64::quick::entry::own_clock!("inside_steady"),
            "
    mov rdx, rax                       // the clock, kept for the comparison
    sub rax, rdi                       // the start by the thread's own clock
    mov [r8 + {start}], rax            // to be taken off at the exit
    sub rdx, [rcx + {cpu_asked}]       // has the kernel been asked not so long ago,
    cmp rdx, {fresh}                   // fewer ticks than that?
    mov rdx, [r8 + {record}]           // the record again
    jae 39f                            // too long ago: compiled code asks
    mov eax, [r9 + {lock}]             // and the thread not been switched out since, up to the reading of the clock?
    bts rax, 32                        // bit 32 tells that there is a page
    cmp rax, [rcx + {cpu_lock}]        // as when it was asked?
    jne 39f                            // switched out: compiled code asks
    inc qword ptr [rdx + {entered}]    // one more call
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
    mov rdi, [rcx + {overhead}]        // where the thread adds up what measuring takes
    mov rdi, [rdi]                     // until now
    and rdi, [rip + {parameters} + {corrects}] // nothing if times are not corrected
    sub rdi, [rip + {costs} + {", // what falls into the call's own time
            $inside,
            "}]
    rdtsc                              // edx:eax
    shl rdx, 32                        // is one number,
    or rax, rdx                        // in rax
            "
        )
    };
}

/// The argument edi of the function esi into rdi, by label `61`; what is not all of a register is narrowed before that.
macro_rules! argument {
    () => {
        "
    test dword ptr [rdx + {entered}], {full} // now and then, and the first time, there is more to do
    jz 39f                             // compiled code sees to that
    lea r9, [rip + {details}]          // a word for each function,
    lea r9, [r9 + 8*rsi]               // a byte for each of its values
    movzx r9d, byte ptr [r9 + rdi]     // where the function has it
    mov edi, r9d                       // the place, whose lowest bits
    and edi, {register}                // are the register's number
    mov rdi, [rsp + 8*rdi + {arguments}] // as the stub has stored it
    cmp r9d, {register}                // has the place other bits?
    ja 60f                             // a part of a register
61:
        "
    };
}

pub(crate) use {argument, entry, more, own_clock};
