//! Exits of the innermost activation: a return, a tail call, and what lends and ends activations between the two.

/// The innermost activation into r8; to `7` where that is not one of this call, of the function esi.
macro_rules! own {
    () => {
        "
    mov r8, [rcx + {top}]              // the innermost activation
    cmp [r8 + {at}], rdx               // of this slot?
    jne 7f                             // compiled code finds the call's
    cmp [r8 + {function}], esi         // of this function?
    jne 7f                             // compiled code finds the call's
        "
    };
}

/// To `7` where the function has not stayed in since the activation r8 began.
macro_rules! current {
    () => {
        "
    lea rax, [rip + {probes}]          // a row of 8 bytes for each function, the generation first
    mov eax, [rax + 8*rsi]             // the generation now
    cmp eax, [r8 + {generation}]       // as at the entry?
    jne 7f                             // compiled code discards the call
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
    mov r8, [rcx + {top}]              // the innermost activation
    lea rax, [rdx + 1]                 // what is lent with this slot is odd
    cmp [r8 + {at}], rax               // its slot, which is odd if it has been lent
    ja 5f                              // what is innermost is of a frame further out: most calls
    je 49f                             // lent with this slot
    cmp dword ptr [rip + {coroutines}], 0 // or on another stack: there nothing is lent
    jne 5f                             // nothing to end
    jmp 6f                             // or has been left behind
49:
            ",
            $crate::arch::x86_64::quick::thread::mark!(),
            "
    mov r8, [rcx + {top}]              // again: a handler may have come until then,
    inc rdx                            // and switched stacks
    cmp [r8 + {at}], rdx               // lent with this slot still?
    jne 7f                             // compiled code finds out
            ",
            $crate::arch::x86_64::quick::thread::now!(),
            "
    jmp 44f                            // ends it
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
    jne 50f                            // it ends here
    lea rax, [rip + {probes}]          // a row of 8 bytes for each function
    mov eax, [rax + 8*rsi + {kind}]    // its kind and number
    test eax, {lends}                  // does a return of another one end its calls?
    jz 50f                             // it ends here
    and eax, {lending}                 // the number that who ends it must have
    xor edi, edi                       // how many are lent with the slot
    mov r9, [r8 + {prev}]              // the activation around it
    inc rdx                            // the slot of what is lent
    cmp [r9 + {at}], rdx               // lent with this slot, too?
    jne 47f                            // no: the first
    movzx edi, word ptr [r9 + {lent}]  // how many have been
47: inc edi                            // this one, too
    cmp edi, {most_lent}               // may more be?
    ja 50f                             // it ends here
    or eax, edi                        // number and count
    mov [r8 + {lent}], eax             // kept in the activation,
    mov [r8 + {at}], rdx               // which is lent by its odd slot
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
48: mov [rcx + {now}], rdi             // the end, which others need, too
            ",
            $crate::arch::x86_64::quick::exit::ticks!(),
            "
    mov r9, [r8 + {record}]            // the record of its path
    test dword ptr [r9 + {closed}], {full} // now and then, and the first time, there is more to do
    jz 8f                              // compiled code sees to that
    cmp byte ptr [r9 + {way}], {timed} // is there more to it than the time?
    jne 51f                            // a value, or another clock
52:
    // One of the inline buckets of the histogram: the logarithm of twice the time in the timer's unit.
    lea rax, [rdi + rdi]               // twice the time
    mul qword ptr [rip + {parameters} + {scale}] // rdx: in the timer's unit
    or rdx, 1                          // 0 has one, too
    bsr rax, rdx                       // the logarithm
    sub eax, [r9 + {first_bucket}]     // the first of the inline buckets
    cmp eax, {buckets}                 // below it, or above the last?
    jae 40f                            // the histogram in the pool
    cmp byte ptr [r9 + {way}], {timed} // more to add before the record is odd?
    jne 53f                            // CPU time, or a result
54: inc dword ptr [r9 + {sequence}]    // odd: readers wait
55:
    // They are eight counts in two words. An address that came from the clock would hold up the next
    // reading of it: that waits for the addresses of all stores before.
    xor edx, edx                       // no bit yet
    shl eax, 4                         // 16 bits each
    bts rdx, rax                       // 1 at the count, of its word
    cmp eax, 64                        // in the first word?
    sbb rax, rax                       // all ones then
    mov rsi, rdx                       // for both words
    and rdx, rax                       // for the first word
    sub rsi, rdx                       // for the second
    add [r9 + {bucket}], rdx           // four counts,
    add [r9 + {bucket} + 8], rsi       // and the other four
    mov esi, [r8 + {function}]         // the function again

41: mov rax, rdi                       // the call's own time:
    sub rax, [r8 + {nested}]           // without what measured callees took: less than none now and then
    inc qword ptr [r9 + {closed}]      // one more call
            ",
            $tail,
            "
    add [r9 + {sum}], rdi              // with callees
    add [r9 + {exclusive}], rax        // and without
    cmp dword ptr [r8 + {outermost}], 0 // has it no call of the function around it?
    je 42f                             // it has: its time is in that one's
    add [r9 + {sum_outermost}], rdi    // no time counts twice
    // Without branches: one that turns out wrong only when the record has come from memory would hold up
    // all that follows.
42: mov rax, [r9 + {min}]              // the shortest
    cmp rdi, rax                       // until now?
    cmovb rax, rdi                     // this one
    mov [r9 + {min}], rax              // kept
    mov rax, [r9 + {max}]              // the longest
    cmp rdi, rax                       // until now?
    cmova rax, rdi                     // this one
    mov [r9 + {max}], rax              // kept
    inc dword ptr [r9 + {sequence}]    // even: whole

    mov rax, [rcx + {depths}]          // open calls by function
    sub dword ptr [rax + 4*rsi], 1     // one call of the function less is open,
    adc dword ptr [rax + 4*rsi], 0     // but never less than none
    mov rax, [r8 + {prev}]             // what is innermost now
    mov [rcx + {top}], rax             // the innermost now
    add [rax + {nested}], rdi          // has called what took so long
    lea rdx, [rsp + {slot} + 1]        // has it been lent with this slot?
    cmp [rax + {at}], rdx              // an odd slot
    je 43f                             // it has: it ends, too
            ",
            $crate::arch::x86_64::quick::thread::done!(),
            "
    // The caller has left by a tail call of this one.
43: mov rdi, [rcx + {now}]             // the time again
44: cmp dword ptr [rip + {coroutines}], 0 // it may have been on another thread meanwhile
    jne 7f                             // compiled code ends them
    mov rsi, [rsp + {way_back}]        // the way back follows the hook's call
    mov esi, [rsi - {id}]              // the function that returns
    lea rax, [rip + {probes}]          // a row of 8 bytes for each function
    mov edx, [rax + 8*rsi + {kind}]    // kind and number of that which returns
    mov r8, [rcx + {top}]              // the one that is lent
    xor edx, [r8 + {lent}]             // has it the number that the other one was lent by?
    test edx, {lending}                // the same?
    jnz 7f                             // compiled code finds out
    mov edx, [r8 + {function}]         // and that the generation that it had?
    mov eax, [rax + 8*rdx]             // the generation now
    cmp eax, [r8 + {generation}]       // as at the entry?
    jne 7f                             // compiled code discards the call
    mov esi, edx                       // the function of the next round
    jmp 48b                            // ends it at the same time

    // A value outside the inline buckets: the histogram in the pool.
40: add eax, [r9 + {first_bucket}]     // the bucket again
    mov edx, [r9 + {histogram}]        // its number and one
    test edx, edx                      // 0: there is none yet
    jz 8f                              // compiled code makes one
    shl rdx, {histogram_bits}          // in bytes; numbers begin at 1
    lea rdx, [rdx + 8*rax - {histogram_len}] // the bucket, from the area's start
    mov rax, [rip + {parameters} + {segment}] // the segment
    add rdx, [rax + {histograms}]      // the area's offset
    add rdx, rax                       // the bucket
    mov eax, [rdx]                     // its count
    inc eax                            // with this call
    test eax, {often}                  // now and then the inline buckets are moved
    jz 8f                              // compiled code moves them
    cmp byte ptr [r9 + {way}], {timed} // more to add before the record is odd?
    jne 56f                            // CPU time, or a result
57: inc dword ptr [r9 + {sequence}]    // odd: readers wait
    inc qword ptr [rdx]                // one more in the bucket
    jmp 41b                            // to the sums

    // More than the time, or not all time alike.
51: cmp byte ptr [r9 + {way}], {timed_result} // a result, or an argument?
    jae 52b                            // and what has an argument
    cmp byte ptr [r9 + {way}], {steady} // CPU time from the same clock?
    jne 8f                             // another source: compiled code reads it
    mov rax, [rcx + {cpu_offset}]      // how far CPU time is behind the clock
    cmp rax, [r8 + {ahead}]            // is the CPU time behind the clock as it was at the entry,
    jne 8f                             // the kernel must be asked
    mov rax, [rcx + {page}]            // the page where the kernel counts switches
    test rax, rax                      // is there one?
    jz 8f                              // the kernel must be asked
    mov eax, [rax + {lock}]            // and has the thread not been switched out since, up to the reading of the clock,
    bts rax, 32                        // bit 32 tells that there is a page
    cmp rax, [rcx + {cpu_lock}]        // as when it was asked?
    jne 8f                             // switched out: the kernel must be asked
    mov rax, [rcx + {now}]             // the end
    mov rdx, rax                       // less when it was asked
    sub rdx, [rcx + {cpu_asked}]       // and the kernel been asked not so long ago,
    cmp rdx, {fresh}                   // fewer ticks than that?
    jae 8f                             // the kernel must be asked
    mov rdx, [r8 + {nested}]           // and is of all that is nested the CPU time known?
    cmp rdx, [r8 + {nested_cpu}]       // all of it?
    jne 8f                             // compiled code finds out
    mov [rcx + {cpu_last}], rax        // the CPU time is that of the clock then
    jmp 52b                            // on, as with the time alone

53: cmp byte ptr [r9 + {way}], {steady} // CPU time from the same clock?
    jne 58f                            // a result
    mov rdx, [r8 + {prev}]             // the activation around it
    add [rdx + {nested_cpu}], rdi      // has the CPU time of this one, too
    jmp 54b                            // on, with the record odd
            ",
            $crate::arch::x86_64::quick::exit::returned!($tail),
            "
56: cmp byte ptr [r9 + {way}], {steady} // CPU time from the same clock?
    jne 59f                            // a result
    mov rax, [r8 + {prev}]             // the activation around it
    add [rax + {nested_cpu}], rdi      // has the CPU time of this one, too
    jmp 57b                            // on, with the record odd
            ",
            $crate::arch::x86_64::quick::exit::returns!($tail),
            "
8:  mov rdi, [rcx + {now}]             // the time again
    mov rsi, [rsp + {way_back}]        // the way back follows the hook's call
    mov esi, [rsi - {id}]              // and the function that returns
    jmp 7f                             // to compiled code
            "
        )
    };
}

/// The ticks of the activation r8 by the thread's own clock, at rdi, into rdi. rax is lost.
macro_rules! ticks {
    () => {
        "
    mov rax, [rcx + {overhead}]        // where the thread adds up what measuring takes
    mov rax, [rax]                     // until now
    and rax, [rip + {parameters} + {corrects}] // nothing if times are not corrected
    sub rdi, rax                       // the thread's own clock
    xor eax, eax                       // the least
    sub rdi, [r8 + {start}]            // since the entry
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
58: cmp byte ptr [r9 + {way}], {timed_result} // has it a result?
    jne 54b                            // an argument has been read at the entry
    mov [rcx + {scratch}], rax         // the bucket, kept
    mov rdx, r9                        // the record, where a value's macro has it
    mov edi, [r8 + {function}]         // the function
    lea r9, [rip + {details}]          // a word for each function
    movzx r9d, byte ptr [r9 + 8*rdi + {ret}] // where the function has it
    mov rdi, [rsp + {result}]          // rax, as the trampoline has stored it
    cmp r9d, {register}                // has the place other bits?
    ja 60f                             // a part of a register
61:
            ",
            $crate::arch::x86_64::quick::value::value!(timed, "8f"),
            "
    mov r9, rdx                        // the record
    mov rdi, [rcx + {now}]             // the end,
            ",
            $crate::arch::x86_64::quick::exit::ticks!(), // again
            "
    mov rax, [rcx + {scratch}]         // the bucket again
    jmp 55b                            // the record is odd: to the bucket
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
59: cmp byte ptr [r9 + {way}], {timed_result} // has it a result?
    jne 57b                            // it has none: on, with the record odd
    jmp 8f                             // compiled code sees to both
        "
    };
    ($tail:tt) => {
        "59: jmp 57b" // a tail call has no result
    };
}

pub(crate) use {current, end, ender, exit, lend, own, returned, returns, ticks};
