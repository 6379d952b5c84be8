//! Exits of the innermost activation: a return, a tail call, and what lends and ends activations between the two.

/// The innermost activation into r8; to `7` where that is not one of this call, of the function esi.
macro_rules! own {
    () => {
        "
    mov r8, [rcx + {top}]
    cmp [r8 + {at}], rdx
    jne 7f
    cmp [r8 + {function}], esi
    jne 7f
        "
    };
}

/// To `7` where the function has not stayed in since the activation r8 began.
macro_rules! current {
    () => {
        "
    lea rax, [rip + {probes}]
    mov eax, [rax + 8*rsi]
    cmp eax, [r8 + {generation}]
    jne 7f
        "
    };
}

/// An exit; `$tail` is more that it counts in the record r9.
macro_rules! exit {
    ($tail:tt) => {
        concat!(
            $crate::arch::x86_64::quick::thread::now!(), // the clock first
            $crate::arch::x86_64::quick::thread::alive_or_child!(),
            $crate::arch::x86_64::quick::thread::find_thread!(),
            $crate::arch::x86_64::quick::thread::mark!(),
            $crate::arch::x86_64::quick::exit::own!(),
            $crate::arch::x86_64::quick::exit::current!(),
            $crate::arch::x86_64::quick::exit::end!($tail),
            $crate::arch::x86_64::quick::thread::out_of_line!()
        )
    };
}

/// A return of a function that is not measured, and so ends the activations lent to it; the same with `$tail`.
macro_rules! ender {
    ($tail:tt) => {
        concat!(
            $crate::arch::x86_64::quick::thread::alive_or_child!(),
            $crate::arch::x86_64::quick::thread::find_thread!(),
            "
    mov r8, [rcx + {top}]
    lea rax, [rdx + 1]                 // what is lent with this slot is odd
    cmp [r8 + {at}], rax
    ja 5f                              // what is innermost is of a frame further out: most calls
    je 49f
    cmp dword ptr [rip + {coroutines}], 0 // or on another stack: there nothing is lent
    jne 5f
    jmp 6f                             // or has been left behind
49:
            ",
            $crate::arch::x86_64::quick::thread::mark!(),
            "
    mov r8, [rcx + {top}]              // again: a handler may have come until then,
    inc rdx                            // and switched stacks
    cmp [r8 + {at}], rdx
    jne 7f
            ",
            $crate::arch::x86_64::quick::thread::now!(),
            "
    jmp 44f
            ",
            $crate::arch::x86_64::quick::exit::end!($tail),
            $crate::arch::x86_64::quick::thread::out_of_line!(),
            $crate::arch::x86_64::quick::thread::now!()
        )
    };
}

/// A tail call of a function that ends what is lent to it. Where nothing is lent the activation ends, as `$tail` says.
macro_rules! lend {
    ($tail:tt) => {
        concat!(
            $crate::arch::x86_64::quick::thread::alive!(),
            $crate::arch::x86_64::quick::thread::find_thread!(),
            $crate::arch::x86_64::quick::thread::mark!(),
            $crate::arch::x86_64::quick::exit::own!(),
            "
    cmp dword ptr [rip + {coroutines}], 0 // who ends it may be on another thread
    jne 50f
    lea rax, [rip + {probes}]
    mov eax, [rax + 8*rsi + {kind}]
    test eax, {lends}
    jz 50f
    and eax, {lending}                 // the number that who ends it must have
    xor edi, edi                       // how many are lent with the slot
    mov r9, [r8 + {prev}]
    inc rdx                            // the slot of what is lent
    cmp [r9 + {at}], rdx
    jne 47f
    movzx edi, word ptr [r9 + {lent}]
47: inc edi                            // this one, too
    cmp edi, {most_lent}
    ja 50f
    or eax, edi
    mov [r8 + {lent}], eax
    mov [r8 + {at}], rdx
            ",
            $crate::arch::x86_64::quick::thread::done!(),
            "
    // It ends here.
50:
            ",
            $crate::arch::x86_64::quick::thread::now!(),
            $crate::arch::x86_64::quick::exit::current!(),
            $crate::arch::x86_64::quick::exit::end!($tail),
            $crate::arch::x86_64::quick::thread::out_of_line!(),
            $crate::arch::x86_64::quick::thread::now!()
        )
    };
}

/// Ends the innermost activation r8, of the function esi, at rdi, and from label `44` on that which is innermost now. With each
/// the next one, where it has been lent with the same slot.
macro_rules! end {
    ($tail:tt) => {
        concat!(
            "
48: mov [rcx + {now}], rdi
            ",
            $crate::arch::x86_64::quick::exit::ticks!(),
            "
    mov r9, [r8 + {record}]
    test dword ptr [r9 + {closed}], {full} // now and then, and the first time, there is more to do
    jz 8f
    cmp byte ptr [r9 + {way}], {timed} // is there more to it than the time?
    jne 51f
52:
    // One of the inline buckets of the histogram: the logarithm of twice the time in the timer's unit.
    lea rax, [rdi + rdi]
    mul qword ptr [rip + {parameters} + {scale}]
    or rdx, 1                          // 0 has one, too
    bsr rax, rdx
    sub eax, [r9 + {first_bucket}]
    cmp eax, {buckets}
    jae 40f
    cmp byte ptr [r9 + {way}], {timed}
    jne 53f
54: inc dword ptr [r9 + {sequence}]    // odd: readers wait
55:
    // They are eight counts in two words. An address that came from the clock would hold up the next
    // reading of it: that waits for the addresses of all stores before.
    xor edx, edx
    shl eax, 4                         // 16 bits each
    bts rdx, rax                       // 1 at the count, of its word
    cmp eax, 64                        // in the first word?
    sbb rax, rax                       // all ones then
    mov rsi, rdx
    and rdx, rax                       // for the first word
    sub rsi, rdx                       // for the second
    add [r9 + {bucket}], rdx
    add [r9 + {bucket} + 8], rsi
    mov esi, [r8 + {function}]

41: mov rax, rdi
    sub rax, [r8 + {nested}]           // without what measured callees took: less than none now and then
    inc qword ptr [r9 + {closed}]
            ",
            $tail,
            "
    add [r9 + {sum}], rdi
    add [r9 + {exclusive}], rax
    cmp dword ptr [r8 + {outermost}], 0
    je 42f
    add [r9 + {sum_outermost}], rdi
    // Without branches: one that turns out wrong only when the record has come from memory would hold up
    // all that follows.
42: mov rax, [r9 + {min}]
    cmp rdi, rax
    cmovb rax, rdi
    mov [r9 + {min}], rax
    mov rax, [r9 + {max}]
    cmp rdi, rax
    cmova rax, rdi
    mov [r9 + {max}], rax
    inc dword ptr [r9 + {sequence}]    // even: whole

    mov rax, [rcx + {depths}]
    sub dword ptr [rax + 4*rsi], 1     // one call of the function less is open,
    adc dword ptr [rax + 4*rsi], 0     // but never less than none
    mov rax, [r8 + {prev}]             // what is innermost now
    mov [rcx + {top}], rax
    add [rax + {nested}], rdi
    lea rdx, [rsp + {slot} + 1]        // has it been lent with this slot?
    cmp [rax + {at}], rdx
    je 43f
            ",
            $crate::arch::x86_64::quick::thread::done!(),
            "
    // The caller has left by a tail call of this one.
43: mov rdi, [rcx + {now}]             // the time again
44: cmp dword ptr [rip + {coroutines}], 0 // it may have been on another thread meanwhile
    jne 7f
    mov rsi, [rsp + {way_back}]
    mov esi, [rsi - {id}]              // the function that returns
    lea rax, [rip + {probes}]
    mov edx, [rax + 8*rsi + {kind}]
    mov r8, [rcx + {top}]
    xor edx, [r8 + {lent}]             // has it the number that the other one was lent by?
    test edx, {lending}
    jnz 7f
    mov edx, [r8 + {function}]         // and that the generation that it had?
    mov eax, [rax + 8*rdx]
    cmp eax, [r8 + {generation}]
    jne 7f
    mov esi, edx
    jmp 48b

    // A value outside the inline buckets: the histogram in the pool.
40: add eax, [r9 + {first_bucket}]     // the bucket again
    mov edx, [r9 + {histogram}]        // its number and one
    test edx, edx                      // 0: there is none yet
    jz 8f
    shl rdx, {histogram_bits}
    lea rdx, [rdx + 8*rax - {histogram_len}]
    mov rax, [rip + {parameters} + {segment}]
    add rdx, [rax + {histograms}]      // the area's offset
    add rdx, rax
    mov eax, [rdx]
    inc eax
    test eax, {often}                  // now and then the inline buckets are moved
    jz 8f
    cmp byte ptr [r9 + {way}], {timed}
    jne 56f
57: inc dword ptr [r9 + {sequence}]
    inc qword ptr [rdx]
    jmp 41b

    // More than the time, or not all time alike.
51: cmp byte ptr [r9 + {way}], {timed_result}
    jae 52b                            // and what has an argument
    cmp byte ptr [r9 + {way}], {steady}
    jne 8f
    mov rax, [rcx + {cpu_offset}]
    cmp rax, [r8 + {ahead}]            // is the CPU time behind the clock as it was at the entry,
    jne 8f
    mov rax, [rcx + {page}]
    test rax, rax
    jz 8f
    mov eax, [rax + {lock}]            // and has the thread not been switched out since, up to the reading of the clock,
    bts rax, 32
    cmp rax, [rcx + {cpu_lock}]
    jne 8f
    mov rax, [rcx + {now}]
    mov rdx, rax
    sub rdx, [rcx + {cpu_asked}]       // and the kernel been asked not so long ago,
    cmp rdx, {fresh}
    jae 8f
    mov rdx, [r8 + {nested}]           // and is of all that is nested the CPU time known?
    cmp rdx, [r8 + {nested_cpu}]
    jne 8f
    mov [rcx + {cpu_last}], rax        // the CPU time is that of the clock then
    jmp 52b

53: cmp byte ptr [r9 + {way}], {steady}
    jne 58f
    mov rdx, [r8 + {prev}]
    add [rdx + {nested_cpu}], rdi
    jmp 54b
            ",
            $crate::arch::x86_64::quick::exit::returned!($tail),
            "
56: cmp byte ptr [r9 + {way}], {steady}
    jne 59f
    mov rax, [r8 + {prev}]
    add [rax + {nested_cpu}], rdi
    jmp 57b
            ",
            $crate::arch::x86_64::quick::exit::returns!($tail),
            "
8:  mov rdi, [rcx + {now}]             // the time again
    mov rsi, [rsp + {way_back}]
    mov esi, [rsi - {id}]              // and the function that returns
    jmp 7f
            "
        )
    };
}

/// The ticks of the activation r8 by the thread's own clock, at rdi, into rdi. rax is lost.
macro_rules! ticks {
    () => {
        "
    mov rax, [rcx + {overhead}]
    mov rax, [rax]
    and rax, [rip + {parameters} + {corrects}]
    sub rdi, rax
    xor eax, eax
    sub rdi, [r8 + {start}]
    cmovb rdi, rax                     // less than none: too short to be told from what measuring takes
        "
    };
}

/// What the function of the call that ends returns, added to its record: from label `58` on to `55` with the record odd, or to
/// `54` where it is not wanted or, at a tail call, there is none.
macro_rules! returned {
    ("") => {
        concat!(
            "
58: cmp byte ptr [r9 + {way}], {timed_result}
    jne 54b                            // an argument has been read at the entry
    mov [rcx + {scratch}], rax
    mov rdx, r9
    mov edi, [r8 + {function}]
    lea r9, [rip + {details}]
    movzx r9d, byte ptr [r9 + 8*rdi + {ret}] // where the function has it
    mov rdi, [rsp + {result}]
    cmp r9d, {register}
    ja 60f
61:
            ",
            $crate::arch::x86_64::quick::value::value!(timed, "8f"),
            "
    mov r9, rdx
    mov rdi, [rcx + {now}]
            ",
            $crate::arch::x86_64::quick::exit::ticks!(), // again
            "
    mov rax, [rcx + {scratch}]
    jmp 55b
            ",
            $crate::arch::x86_64::quick::value::narrow!("8f")
        )
    };
    ($tail:tt) => {
        "
58: jmp 54b                            // {result} {scratch} {details} {ret} {register} {not_register} {half} {signed_half}
                                       // {second} {base} {column} {of_first_bucket} {of_buckets} {of_sum} {of_upper} {of_min} {of_max}
                                       // {of_histogram}
        "
    };
}

/// Where the time is outside the inline buckets: from label `59` on to `8` where a value is wanted that is returned, else to `57`.
macro_rules! returns {
    ("") => {
        "
59: cmp byte ptr [r9 + {way}], {timed_result}
    jne 57b
    jmp 8f
        "
    };
    ($tail:tt) => {
        "59: jmp 57b"
    };
}

pub(crate) use {current, end, ender, exit, lend, own, returned, returns, ticks};
