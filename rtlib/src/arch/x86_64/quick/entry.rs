//! An entry with a cached walk, of a call that is counted or timed, and additional measurements.

/// The key of a walk: the slot, which is in rdx, with the function in its epoch.
macro_rules! key_of_slot {
    () => {
        "
    mov [rcx + {entry_rbp}], rbp       // a cached walk may compare rbp as one of its words
    mov r8, [rip + {epoch}]            // the epoch, so that walks of earlier epochs do not match
    or r8, rsi                         // add the function id; the slot is the other half of the key
        "
    };
}

/// The key of a call on a path of measured functions: the record of the innermost open call with
/// its state, with the function in its epoch. [`crate::calls::activation::key`] is the same.
macro_rules! key_of_caller {
    () => {
        "
    mov r8, [rcx + {top}]              // the innermost activation
    mov edx, [r8 + {at}]               // its slot
    and edx, 7                         // the slot's lowest bits: is it lent or in doubt?
    or edx, 2                          // no slot, so no key of a walk or of a branch
    or rdx, [r8 + {record}]            // add its record
    mov r8, [rip + {epoch}]            // the epoch, as for walks
    or r8, rsi                         // add the function id
    mov eax, esi                       // the last run of the function
    and eax, {last} - 1                // its lowest bits are the index
    shl eax, {memo_entry_bits}         // convert the index to bytes
    lea rax, [rcx + rax + {memo} + {last_at}] // the address of its entry
    cmp [rax], rdx                     // does the first half of the key match?
    jne 22f                            // no: look it up
    cmp [rax + 8], r8                  // does the second half match?
    je 25f                             // yes: found
        "
    };
}

/// An entry. `$key` is the macro that loads the key of its walk into (rdx, r8).
macro_rules! entry {
    ($key:ident) => {
        concat!(
            $crate::arch::x86_64::quick::thread::alive!(),
            "
    lea rdi, [rip + {probes}]          // the probe table, with 8 bytes per function
    cmp dword ptr [rdi + 8*rsi], 0     // the generation; 0 if the function is not instrumented
    je 5f                              // not instrumented: ignore the call
    cmp byte ptr [rdi + 8*rsi + {kind}], {call} // is the kind above a plain measured call?
    ja 6f                              // yes: use compiled code
            ",
            $crate::arch::x86_64::quick::thread::find_thread!(),
            $crate::arch::x86_64::quick::thread::mark!(),
            "
    cmp rdx, [rcx + {low}]             // below the low end of the last known stack?
    jb 7f                              // yes: another stack
    cmp rdx, [rcx + {high}]            // at or above its high end?
    jae 7f                             // yes: another stack
            ",
            $crate::arch::x86_64::quick::entry::$key!(),
            $crate::arch::x86_64::quick::run::find_run!(),
            "
    // All words match. rax is the run.
27: inc qword ptr [rcx + {quick_calls}] // count a call with a cached walk
    mov r8, [rcx + {overhead}]         // the thread's overhead counter
    mov r9, [rax + {run_cost}]         // the cost of this measurement, in ticks
    add [r8], r9                       // add it to the thread's overhead
    lea rdi, [rip + {probes}]          // the probe table
    cmp byte ptr [rdi + 8*rsi + {kind}], {call} // is the call timed, or only counted?
    mov rdx, [rax + {run_record}]      // the record of the call path
    je 29f                             // timed: it needs an activation
    xor r8d, r8d                       // no activation
    cmp byte ptr [rdx + {way}], {counted} // does the record need only a count?
    jne 37f                            // no: it also needs a value in a column
    inc qword ptr [rdx + {entered}]    // count the call
            ",
            $crate::arch::x86_64::quick::thread::done!(),
            $crate::arch::x86_64::quick::run::next_run!(),
            "
    // Push an activation onto the list.
29: mov r8, [rcx + {top}]              // the innermost activation so far
    mov rax, [rax + {run_stack}]       // the stack of this call
    lea r9, [rsp + {slot}]             // the slot of this call
    cmp [r8 + {stack}], rax            // is the innermost activation on the same stack?
    jne 34f                            // no: check for coroutines
    cmp [r8 + {at}], r9                // is its slot further out?
    jbe 7f                             // no: it was abandoned, and compiled code ends it
30: mov r8, [r8 + {next}]              // the next activation to use
    test r8, r8                        // null if none is left
    jz 7f                              // none: compiled code allocates more
    mov [r8 + {at}], r9                // store the slot
    mov [r8 + {stack}], rax            // store the stack
    mov qword ptr [r8 + {nested}], 0   // no time in measured callees yet
    mov [r8 + {record}], rdx           // store the record
    mov [r8 + {function}], esi         // store the function id
    mov eax, [rdi + 8*rsi]             // the function's current generation
    mov [r8 + {generation}], eax       // store the generation
    mov r9, [rcx + {depths}]           // the table of open calls per function
    xor eax, eax                       // start with outermost = 0
    cmp dword ptr [r9 + 4*rsi], 1      // set the carry flag if no call of the function is open
    adc eax, 0                         // outermost = carry
    mov [r8 + {outermost}], eax        // store outermost
    inc dword ptr [r9 + 4*rsi]         // one more call of the function is open
    mov [rcx + {top}], r8              // make this activation the innermost
    cmp byte ptr [rdx + {way}], {timed} // does the record need only the time?
    jne 38f                            // no: it needs a value or another clock
35: inc qword ptr [rdx + {entered}]    // count the call
            ",
            $crate::arch::x86_64::quick::entry::own_clock!("inside"), // read the clock last
            "
    sub rax, rdi                       // the start time on the thread clock
    mov [r8 + {start}], rax            // store it for the exit
            ",
            $crate::arch::x86_64::quick::thread::done!(),
            "
    // The innermost activation is on another stack.
34: cmp dword ptr [rip + {parameters} + {checks_stacks}], 0 // must stacks be checked?
    je 30b                             // no: a handler's stack, or a path without its root
    cmp rax, {elsewhere}               // is the path one that is not recorded?
    je 46f                             // yes: ignore the call
    cmp dword ptr [rip + {coroutines}], 0 // does the program have coroutines?
    je 30b                             // no: as above
    jmp 7f                             // the walk may be a coroutine's: compiled code decides
46:
            ",
            $crate::arch::x86_64::quick::thread::done!(),
            $crate::arch::x86_64::quick::thread::out_of_line!()
        )
    };
}

/// The work beyond a count (label `37`) or a time (label `38`), for a call of the function esi with
/// the record rdx and, if it is timed, the activation r8. It falls off the end with nothing done
/// yet if compiled code must do it.
macro_rules! more {
    () => {
        concat!(
            "
37: movzx edi, byte ptr [rdx + {way}]  // the measurements of the record
    sub edi, {argument}                // the argument's number
    cmp edi, {ret}                     // is it an argument?
    jae 39f                            // no: use compiled code
            ",
            $crate::arch::x86_64::quick::entry::argument!(),
            $crate::arch::x86_64::quick::value::value!(alone, "39f"),
            "
    inc dword ptr [rdx + {sequence}]   // even: the record is consistent
    inc qword ptr [rdx + {entered}]    // count the call
            ",
            $crate::arch::x86_64::quick::thread::done_behind!(),
            $crate::arch::x86_64::quick::value::narrow!("39f"),
            "
38: movzx edi, byte ptr [rdx + {way}]  // the measurements of the record
    sub edi, {timed_argument}          // the argument's number, if the record has one
    jb 72f                             // below all argument numbers: no argument
    mov r9d, edi                       // keep the number while the clock is read
            ",
            // Read the clock first. Later, it would wait for the column's addresses.
            $crate::arch::x86_64::quick::entry::own_clock!("inside_argument"),
            "
    sub rax, rdi                       // the start time on the thread clock
    mov [r8 + {start}], rax            // store it for the exit
    mov rdx, [r8 + {record}]           // reload the record
    mov edi, r9d                       // the argument's number
            ",
            $crate::arch::x86_64::quick::entry::argument!(),
            $crate::arch::x86_64::quick::value::value!(timed, "39f"),
            "
    inc dword ptr [rdx + {sequence}]   // even: the record is consistent
    inc qword ptr [rdx + {entered}]    // count the call
            ",
            $crate::arch::x86_64::quick::thread::done_behind!(),
            $crate::arch::x86_64::quick::value::narrow!("39f"),
            "
72: cmp edi, {timed_result} - {timed_argument} // does the record need a result?
    je 35b                             // yes: the exit reads it
    cmp edi, {steady} - {timed_argument} // does it need CPU time from the same clock?
    jne 39f                            // no: compiled code reads the other source

    // Read only the clock. Its lead over the thread's CPU time is constant while the thread is not
    // switched out.
    mov r9, [rcx + {page}]             // the kernel's page that shows context switches
    test r9, r9                        // does the thread have a page?
    jz 39f                             // no: compiled code reads the CPU time
    mov qword ptr [r8 + {nested_cpu}], 0 // no CPU time in measured callees yet
    mov rdi, [rcx + {cpu_offset}]      // the clock minus the CPU time
    mov [r8 + {ahead}], rdi            // store it for the exit
            ",
            $crate::arch::x86_64::quick::entry::own_clock!("inside_steady"),
            "
    mov rdx, rax                       // keep the clock for the comparison
    sub rax, rdi                       // the start time on the thread clock
    mov [r8 + {start}], rax            // store it for the exit
    sub rdx, [rcx + {cpu_asked}]       // ticks since the kernel was last asked
    cmp rdx, {fresh}                   // is the answer recent enough?
    mov rdx, [r8 + {record}]           // reload the record; flags are preserved
    jae 39f                            // too old: compiled code asks the kernel
    mov eax, [r9 + {lock}]             // read the sequence number after the clock
    bts rax, 32                        // set bit 32: the thread has a page
    cmp rax, [rcx + {cpu_lock}]        // is it unchanged since the kernel was asked?
    jne 39f                            // switched out since: compiled code asks the kernel
    inc qword ptr [rdx + {entered}]    // count the call
            ",
            $crate::arch::x86_64::quick::thread::done_behind!(),
            "
39:
            "
        )
    };
}

/// Reads the clock into rax, and its lead over the thread clock at the start of the call into rdi.
/// The lead is the overhead so far minus the cost `$inside`, which falls into the call's own time
/// but does not belong to the call. Changes rdx.
macro_rules! own_clock {
    ($inside:literal) => {
        concat!(
            "
    mov rdi, [rcx + {overhead}]        // the address of the thread's overhead counter
    mov rdi, [rdi]                     // the overhead so far
    and rdi, [rip + {parameters} + {corrects}] // 0 if times are not corrected
    sub rdi, [rip + {costs} + {", // subtract the cost within the call's own time
            $inside,
            "}]
    rdtsc                              // read the clock into edx:eax
    shl rdx, 32                        // the high half of edx:eax
    or rax, rdx                        // the full counter
            "
        )
    };
}

/// Reads argument edi of the function esi into rdi, up to label `61`. A part of a register is
/// narrowed before that.
macro_rules! argument {
    () => {
        "
    test dword ptr [rdx + {entered}], {full} // first call, or time to empty inline buckets?
    jz 39f                             // yes: use compiled code
    lea r9, [rip + {details}]          // the table of value locations, 8 bytes per function
    lea r9, [r9 + 8*rsi]               // the function's row, one byte per value
    movzx r9d, byte ptr [r9 + rdi]     // the location of the argument
    mov edi, r9d                       // copy the location
    and edi, {register}                // its lowest bits are the register number
    mov rdi, [rsp + 8*rdi + {arguments}] // the stored register
    cmp r9d, {register}                // is it a whole register?
    ja 60f                             // no: narrow the value
61:
        "
    };
}

pub(crate) use {argument, entry, key_of_caller, key_of_slot, more, own_clock};
