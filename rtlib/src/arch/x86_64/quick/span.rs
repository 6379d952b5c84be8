//! The start of a span with a cached walk, and its end. A span begins and ends inside its function,
//! so the slot is that of the function's frame. The row of the span has its location. At a timed
//! path, the row of the hook has it.

/// The start of a span. Measurements beyond a count or a time follow, as for an entry. `$location`
/// loads the location of the frame.
macro_rules! begin {
    ($location:ident) => {
        concat!(
            $crate::arch::x86_64::quick::thread::alive!(),
            "
    lea rdi, [rip + {probes}]          // the probe table, with 8 bytes per span
    cmp dword ptr [rdi + 8*rsi], 0     // the generation; 0 if the span is not instrumented
    je 5f                              // not instrumented: ignore the pass
    cmp byte ptr [rdi + 8*rsi + {kind}], {call} // is the kind above a plain measured call?
    ja 6f                              // yes: use compiled code
    cmp dword ptr [rip + {take_turns}], {turns} // do stacks take turns in one memory range?
    je 6f                              // yes: use compiled code
            ",
            $crate::arch::x86_64::quick::thread::find_thread!(),
            $crate::arch::x86_64::quick::thread::mark!(),
            $crate::arch::x86_64::quick::point::frame!($location),
            $crate::arch::x86_64::quick::run::find_run!(),
            "
    // All words match. rax is the run.
27: inc qword ptr [rcx + {quick_calls}] // count a call with a cached walk
    mov r8, [rcx + {overhead}]         // the thread's overhead counter
    mov r9, [rax + {run_cost}]         // the cost of this measurement, in ticks
    add [r8], r9                       // add it to the thread's overhead
    lea rdi, [rip + {probes}]          // the probe table
    cmp byte ptr [rdi + 8*rsi + {kind}], {call} // is the span timed, or only counted?
    mov rdx, [rax + {run_record}]      // the record of the call path
    je 29f                             // timed: it needs an activation
    xor r8d, r8d                       // no activation
    cmp byte ptr [rdx + {way}], {counted} // does the record need only a count?
    jne 37f                            // no: it also needs a value in a column
    inc qword ptr [rdx + {entered}]    // count the span
            ",
            $crate::arch::x86_64::quick::thread::done!(),
            $crate::arch::x86_64::quick::run::next_run!(),
            "
    // Push an activation onto the list.
29: mov r8, [rcx + {top}]              // the innermost activation so far
    mov rax, [rax + {run_stack}]       // the stack of this span
            ",
            $crate::arch::x86_64::quick::span::slot!($location, "r9", "rdi", "dil"),
            "
    cmp [r8 + {stack}], rax            // is the innermost activation on the same stack?
    jne 34f                            // no: check for coroutines
    cmp [r8 + {at}], r9                // is its slot further out?
    jb 7f                              // no: it was abandoned, and compiled code ends it
    jne 30f                            // yes: the span is the first of its call
    mov rdi, [rcx + {depths}]          // the table of open calls per function and span
    cmp dword ptr [rdi + 4*rsi], 0     // is a span with this id open, perhaps of this call?
    jne 7f                             // yes: compiled code ends it
30: lea rdi, [rip + {probes}]          // the probe table
    mov r8, [r8 + {next}]              // the next activation to use
    test r8, r8                        // null if none is left
    jz 7f                              // none: compiled code allocates more
    mov [r8 + {at}], r9                // store the slot
    mov [r8 + {stack}], rax            // store the stack
    mov qword ptr [r8 + {nested}], 0   // no time in measured callees yet
    mov [r8 + {record}], rdx           // store the record
    mov [r8 + {function}], esi         // store the id
    mov eax, [rdi + 8*rsi]             // the span's current generation
    mov [r8 + {generation}], eax       // store the generation
    mov r9, [rcx + {depths}]           // the table of open calls per function and span
    xor eax, eax                       // start with outermost = 0
    cmp dword ptr [r9 + 4*rsi], 1      // set the carry flag if none is open
    adc eax, 0                         // outermost = carry
    mov [r8 + {outermost}], eax        // store outermost
    inc dword ptr [r9 + 4*rsi]         // one more is open
    mov [rcx + {top}], r8              // make this activation the innermost
    cmp byte ptr [rdx + {way}], {timed} // does the record need only the time?
    jne 38f                            // no: it needs another clock
35: inc qword ptr [rdx + {entered}]    // count the span
            ",
            $crate::arch::x86_64::quick::entry::own_clock!("inside"), // read the clock last
            "
    sub rax, rdi                       // the start time on the thread clock
    mov [r8 + {start}], rax            // store it for the end
            ",
            $crate::arch::x86_64::quick::thread::done!(),
            "
    // The innermost activation is on another stack.
34: cmp dword ptr [rip + {parameters} + {checks_stacks}], 0 // must stacks be checked?
    je 30b                             // no: a handler's stack, or a path without its root
    cmp rax, {elsewhere}               // is the path one that is not recorded?
    je 46f                             // yes: ignore the span
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

/// The end of a span.
macro_rules! end {
    () => {
        concat!(
            $crate::arch::x86_64::quick::thread::now!(), // read the clock first
            $crate::arch::x86_64::quick::thread::alive_or_child!(),
            $crate::arch::x86_64::quick::thread::find_thread!(),
            $crate::arch::x86_64::quick::thread::mark!(),
            $crate::arch::x86_64::quick::span::slot!(by_number, "rdx", "rax", "al"),
            $crate::arch::x86_64::quick::exit::own!(),
            $crate::arch::x86_64::quick::exit::current!(),
            $crate::arch::x86_64::quick::exit::end!("// a span has no result"),
            $crate::arch::x86_64::quick::exit::unrecorded!(),
            $crate::arch::x86_64::quick::thread::out_of_line!()
        )
    };
}

/// Loads the slot of the span esi into the register `$slot`. Changes the register `$at`, whose low
/// byte is `$low`, and the flags. `$location` loads the location of the frame.
macro_rules! slot {
    ($location:ident, $slot:literal, $at:literal, $low:literal) => {
        concat!(
            $crate::arch::x86_64::quick::point::$location!($at, $slot),
            "
    lea ",
            $slot,
            ", [rsp + {slot} + {red_zone}] // the stack pointer at the hook
    test ",
            $low,
            ", {by_rbp}          // is the slot relative to the frame pointer?
    cmovnz ",
            $slot,
            ", rbp            // yes: use rbp instead
    sar ",
            $at,
            ", {slot_shift}        // the signed distance to the slot, in the upper half
    add ",
            $slot,
            ", ",
            $at,
            "         // the slot
            "
        )
    };
}

pub(crate) use {begin, end, slot};
