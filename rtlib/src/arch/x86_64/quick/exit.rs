//! Exits of the innermost activation: returns, tail calls, and the lending and ending of
//! activations.

/// Loads the innermost activation into r8. Jumps to `7` or `90` if it does not belong to this call
/// of the function esi.
macro_rules! own {
    () => {
        "
    mov r8, [rcx + {top}]              // the innermost activation
    cmp [r8 + {at}], rdx               // does it have this slot?
    jne 90f                            // no: the call may have no activation
    cmp [r8 + {function}], esi         // does it belong to this function?
    jne 7f                             // no: compiled code finds the call's activation
        "
    };
}

/// The exit of a call that may have no activation, because its path is not recorded. r8 is the
/// innermost activation, and the flags are those of the comparison of its slot with this one.
macro_rules! unrecorded {
    () => {
        concat!(
            "
90: jb 7f                              // the innermost one was abandoned: use compiled code
    cmp dword ptr [rip + {parameters} + {filters}], 0 // are all paths recorded?
    je 7f                              // yes: compiled code finds the call's activation
    cmp dword ptr [rip + {coroutines}], 0 // does the program have coroutines?
    jne 7f                             // yes: compiled code decides
    cmp rdx, [rcx + {stack_low}]       // below the low end of the thread's last stack?
    jb 7f                              // yes: another stack
    mov rax, [r8 + {at}]               // the slot of the innermost activation
    dec rax                            // that of a call lent to this one is odd
    cmp rax, rdx                       // is it lent to this call?
    je 7f                              // yes: it ends here
    inc rax                            // the slot again
    cmp rax, [rcx + {stack_high}]      // is it on the same stack, further out?
    jb 91f                             // yes: this call has no activation
    inc rax                            // 0 at the bottom of the list
    jnz 7f                             // an activation on another stack: compiled code decides
91: mov r8, [rcx + {overhead}]         // the thread's overhead counter
    mov r9, [rip + {costs} + {cost_counted}] // this costs about as much as a counted call
    add [r8], r9                       // add it to the thread's overhead
            ",
            $crate::arch::x86_64::quick::thread::done!(),
        )
    };
}

/// Jumps to `7` if the function has not stayed instrumented since the activation r8 began.
macro_rules! current {
    () => {
        "
    lea rax, [rip + {probes}]          // the probe table, with 8 bytes per function
    mov eax, [rax + 8*rsi]             // the function's current generation
    cmp eax, [r8 + {generation}]       // is it the same as at the entry?
    jne 7f                             // no: compiled code discards the call
        "
    };
}

/// An exit. `$tail` updates further counts in the record r9.
macro_rules! exit {
    ($tail:tt) => {
        concat!(
            $crate::arch::x86_64::quick::thread::now!(), // read the clock first
            $crate::arch::x86_64::quick::thread::alive_or_child!(),
            $crate::arch::x86_64::quick::thread::find_thread!(),
            $crate::arch::x86_64::quick::thread::mark!(),
            $crate::arch::x86_64::quick::exit::own!(),
            $crate::arch::x86_64::quick::exit::current!(),
            $crate::arch::x86_64::quick::exit::end!($tail),
            $crate::arch::x86_64::quick::exit::unrecorded!(),
            $crate::arch::x86_64::quick::thread::out_of_line!()
        )
    };
}

/// A return or tail call of a function that is not measured: ends the activations lent to it.
/// `$tail` updates further counts in the record r9.
macro_rules! ender {
    ($tail:tt) => {
        concat!(
            $crate::arch::x86_64::quick::thread::alive_or_child!(),
            $crate::arch::x86_64::quick::thread::find_thread!(),
            "
    mov r8, [rcx + {top}]              // the innermost activation
    lea rax, [rdx + 1]                 // the slot of activations lent to this call, which is odd
    cmp [r8 + {at}], rax               // compare it with the innermost activation's slot
    ja 5f                              // above: an outer frame's activation, as for most calls
    je 49f                             // equal: lent to this call
    cmp dword ptr [rip + {coroutines}], 0 // below: does the program have coroutines?
    jne 5f                             // yes: another stack, where nothing is lent
    jmp 6f                             // no: abandoned, so use compiled code
49:
            ",
            $crate::arch::x86_64::quick::thread::mark!(),
            "
    mov r8, [rcx + {top}]              // reload: a handler may have run before the mark
    inc rdx                            // the odd slot; a handler may have switched stacks
    cmp [r8 + {at}], rdx               // is the innermost activation still lent to this call?
    jne 7f                             // no: compiled code decides
            ",
            $crate::arch::x86_64::quick::thread::now!(),
            $crate::arch::x86_64::quick::exit::lent_cost!("cost_ender", "cost_ender_after"),
            "
    jmp 44f                            // end the activation
            ",
            $crate::arch::x86_64::quick::exit::end!($tail),
            $crate::arch::x86_64::quick::thread::out_of_line!(),
            $crate::arch::x86_64::quick::thread::now!()
        )
    };
}

/// A tail call of a measured function to one whose exits end lent activations. If the activation
/// cannot be lent it ends, and `$tail` updates further counts in the record r9.
macro_rules! lend {
    ($tail:tt) => {
        concat!(
            $crate::arch::x86_64::quick::thread::alive!(),
            $crate::arch::x86_64::quick::thread::find_thread!(),
            $crate::arch::x86_64::quick::thread::mark!(),
            $crate::arch::x86_64::quick::exit::own!(),
            "
    cmp dword ptr [rip + {coroutines}], 0 // with coroutines, another thread may run its end
    jne 50f                            // end the activation here
    lea rax, [rip + {probes}]          // the probe table, with 8 bytes per function
    mov eax, [rax + 8*rsi + {kind}]    // the function's kind and group number
    test eax, {lends}                  // can another function's return end its calls?
    jz 50f                             // no: end the activation here
    and eax, {lending}                 // the group number, which the ending function must share
    xor edi, edi                       // no activations are lent with the slot yet
    mov r9, [r8 + {prev}]              // the enclosing activation
    inc rdx                            // the odd slot of lent activations
    cmp [r9 + {at}], rdx               // is the enclosing one lent with this slot, too?
    jne 47f                            // no: this is the first
    movzx edi, word ptr [r9 + {lent}]  // the number of activations lent so far
47: inc edi                            // count this one
    cmp edi, {most_lent}               // is the limit exceeded?
    ja 50f                             // yes: end the activation here
    or eax, edi                        // combine group number and count
    mov [r8 + {lent}], eax             // store both in the activation
    mov [r8 + {at}], rdx               // mark the activation as lent by the odd slot
            ",
            $crate::arch::x86_64::quick::thread::done!(),
            "
    // End the activation here.
50:
            ",
            $crate::arch::x86_64::quick::thread::now!(),
            $crate::arch::x86_64::quick::exit::current!(),
            $crate::arch::x86_64::quick::exit::end!($tail),
            $crate::arch::x86_64::quick::exit::unrecorded!(),
            $crate::arch::x86_64::quick::thread::out_of_line!(),
            $crate::arch::x86_64::quick::thread::now!()
        )
    };
}

/// Ends the innermost activation r8, of the function esi, at the time rdi. From label `44` on, ends
/// the activation that is innermost then. Repeats that while the next one was lent with the same
/// slot.
macro_rules! end {
    ($tail:tt) => {
        concat!(
            "
48: mov [rcx + {now}], rdi             // store the end time, which is needed again below
            ",
            $crate::arch::x86_64::quick::exit::ticks!(),
            "
    mov r9, [r8 + {record}]            // the record of the call path
    test dword ptr [r9 + {closed}], {full} // first call, or time to empty the buckets?
    jz 8f                              // yes: use compiled code
    cmp byte ptr [r9 + {way}], {timed} // does the record need only the time?
    jne 51f                            // no: it needs a value or another clock
52:
    // Add the time to an inline bucket of the histogram. The bucket number is the logarithm of
    // twice the time, in the timer's unit.
    lea rax, [rdi + rdi]               // twice the time
    mul qword ptr [rip + {parameters} + {scale}] // convert it to the timer's unit, into rdx
    or rdx, 1                          // give 0 a logarithm
    bsr rax, rdx                       // the logarithm, which is the bucket number
    sub eax, [r9 + {first_bucket}]     // the index from the first inline bucket
    cmp eax, {buckets}                 // is it outside the inline buckets?
    jae 40f                            // yes: use the histogram in the pool
    cmp byte ptr [r9 + {way}], {timed} // does the record need only the time?
    jne 53f                            // no: add CPU time or a result first
54: inc dword ptr [r9 + {sequence}]    // odd: readers wait
55:
    // The inline buckets are eight counts in two words. Do not compute an address from the clock:
    // the next clock reading waits for the addresses of all earlier stores.
    xor edx, edx                       // start with no bit set
    shl eax, 4                         // the bit offset of a 16-bit count
    bts rdx, rax                       // 1 at the count, within its word
    cmp eax, 64                        // is the count in the first word?
    sbb rax, rax                       // all ones if it is, else 0
    mov rsi, rdx                       // copy the increment
    and rdx, rax                       // the increment of the first word
    sub rsi, rdx                       // the increment of the second word
    add [r9 + {bucket}], rdx           // add to the first four counts
    add [r9 + {bucket} + 8], rsi       // add to the last four counts
    mov esi, [r8 + {function}]         // reload the function id

41: mov rax, rdi                       // copy the time of the call
    sub rax, [r8 + {nested}]           // subtract measured callees: may be slightly negative
    inc qword ptr [r9 + {closed}]      // count the closed call
            ",
            $tail,
            "
    add [r9 + {sum}], rdi              // add the inclusive time
    add [r9 + {exclusive}], rax        // add the exclusive time
    cmp dword ptr [r8 + {outermost}], 0 // is it the outermost call of the function?
    je 42f                             // no: its time is part of the outermost call's
    add [r9 + {sum_outermost}], rdi    // add the time of outermost calls
    // Use no branches here. They would depend on the record, and a misprediction found after a
    // cache miss would delay everything that follows.
42: mov rax, [r9 + {min}]              // the minimum so far
    cmp rdi, rax                       // compare the time with it
    cmovb rax, rdi                     // take the time if it is less
    mov [r9 + {min}], rax              // store the minimum
    mov rax, [r9 + {max}]              // the maximum so far
    cmp rdi, rax                       // compare the time with it
    cmova rax, rdi                     // take the time if it is greater
    mov [r9 + {max}], rax              // store the maximum
    inc dword ptr [r9 + {sequence}]    // even: the record is consistent

    mov rax, [rcx + {depths}]          // the table of open calls per function
    sub dword ptr [rax + 4*rsi], 1     // one call fewer is open
    adc dword ptr [rax + 4*rsi], 0     // undo that if it was 0
    mov rax, [r8 + {prev}]             // the enclosing activation
    mov [rcx + {top}], rax             // make it the innermost
    add [rax + {nested}], rdi          // add the time to its measured callees
    lea rdx, [rsp + {slot} + 1]        // the odd slot of activations lent to this call
    cmp [rax + {at}], rdx              // is the enclosing activation lent to it?
    je 43f                             // yes: end it, too
            ",
            $crate::arch::x86_64::quick::thread::done!(),
            "
    // The caller has left by a tail call to this function.
43: mov rdi, [rcx + {now}]             // reload the end time
            ",
            $crate::arch::x86_64::quick::exit::lent_cost!("cost_lent", "cost_lent_after"),
            "
44: cmp dword ptr [rip + {coroutines}], 0 // with coroutines, it may have moved to another thread
    jne 7f                             // coroutines: compiled code ends the activations
    mov rsi, [rsp + {way_back}]        // the return address of the hook's call
    mov esi, [rsi - {id}]              // the id of the returning function
    lea rax, [rip + {probes}]          // the probe table, with 8 bytes per function
    mov edx, [rax + 8*rsi + {kind}]    // the kind and group number of the returning function
    mov r8, [rcx + {top}]              // the lent activation
    xor edx, [r8 + {lent}]             // compare it with the group number at the time of lending
    test edx, {lending}                // are the group numbers equal?
    jnz 7f                             // no: compiled code decides
    mov edx, [r8 + {function}]         // the function of the lent activation
    mov eax, [rax + 8*rdx]             // its current generation
    cmp eax, [r8 + {generation}]       // is it the same as at the entry?
    jne 7f                             // no: compiled code discards the call
    mov esi, edx                       // pass the function id to the next round
    jmp 48b                            // end the activation at the same time

    // A time outside the inline buckets is added to the histogram in the pool.
40: add eax, [r9 + {first_bucket}]     // the bucket number again
    mov edx, [r9 + {histogram}]        // the number of the histogram, starting at 1
    test edx, edx                      // 0 if there is no histogram
    jz 8f                              // none: compiled code allocates one
    shl rdx, {histogram_bits}          // the number times the size of a histogram
    lea rdx, [rdx + 8*rax - {histogram_len}] // offset of the bucket from the area
    mov rax, [rip + {parameters} + {segment}] // the address of the segment
    add rdx, [rax + {histograms}]      // add the offset of the area in the segment
    add rdx, rax                       // the address of the bucket
    mov eax, [rdx]                     // the count of the bucket
    inc eax                            // the count with this call
    test eax, {often}                  // is it time to review the choice of inline buckets?
    jz 8f                              // yes: compiled code does that
    cmp byte ptr [r9 + {way}], {timed} // does the record need only the time?
    jne 56f                            // no: add CPU time or a result first
57: inc dword ptr [r9 + {sequence}]    // odd: readers wait
    inc qword ptr [rdx]                // increment the bucket
    jmp 41b                            // continue with the sums

    // The record needs a value or another clock.
51: cmp byte ptr [r9 + {way}], {timed_result} // does the record need a result or an argument?
    jae 52b                            // yes: continue as for the time alone
    cmp byte ptr [r9 + {way}], {steady} // does it need CPU time from the same clock?
    jne 8f                             // no: compiled code reads the other source
    mov rax, [rcx + {cpu_offset}]      // the clock minus the CPU time
    cmp rax, [r8 + {ahead}]            // is it the same as at the entry?
    jne 8f                             // no: compiled code asks the kernel
    mov rax, [rcx + {page}]            // the kernel's page that shows context switches
    test rax, rax                      // does the thread have a page?
    jz 8f                              // no: compiled code asks the kernel
    mov eax, [rax + {lock}]            // read the sequence number after the clock
    bts rax, 32                        // set bit 32: the thread has a page
    cmp rax, [rcx + {cpu_lock}]        // is it unchanged since the kernel was asked?
    jne 8f                             // switched out since: compiled code asks the kernel
    mov rax, [rcx + {now}]             // the end time
    mov rdx, rax                       // copy the end time
    sub rdx, [rcx + {cpu_asked}]       // ticks since the kernel was last asked
    cmp rdx, {fresh}                   // is the answer recent enough?
    jae 8f                             // too old: compiled code asks the kernel
    mov rdx, [r8 + {nested}]           // the time of all measured callees
    cmp rdx, [r8 + {nested_cpu}]       // is their CPU time the same, and so known?
    jne 8f                             // no: compiled code decides
    mov [rcx + {cpu_last}], rax        // store the clock of the last CPU time
    jmp 52b                            // continue as for the time alone

53: cmp byte ptr [r9 + {way}], {steady} // does the record need CPU time from the same clock?
    jne 58f                            // no: it needs a value
    mov rdx, [r8 + {prev}]             // the enclosing activation
    add [rdx + {nested_cpu}], rdi      // add the CPU time to its measured callees
    jmp 54b                            // continue with the record
            ",
            $crate::arch::x86_64::quick::exit::returned!($tail),
            "
56: cmp byte ptr [r9 + {way}], {steady} // does the record need CPU time from the same clock?
    jne 59f                            // no: it needs a value
    mov rax, [r8 + {prev}]             // the enclosing activation
    add [rax + {nested_cpu}], rdi      // add the CPU time to its measured callees
    jmp 57b                            // continue with the record
            ",
            $crate::arch::x86_64::quick::exit::returns!($tail),
            "
8:  mov rdi, [rcx + {now}]             // reload the end time
    mov rsi, [rsp + {way_back}]        // the return address of the hook's call
    mov esi, [rsi - {id}]              // the id of the returning function
    jmp 7f                             // continue in compiled code
            "
        )
    };
}

/// Corrects the overhead for a lent activation that ends: an exit of its own was counted at its
/// entry, but lending it and this end take another time. The part after the reading of the clock is
/// added to the time in rdi as well, since it is no part of the call's time. Changes rax, rdx and
/// the flags.
macro_rules! lent_cost {
    ($cost:literal, $after:literal) => {
        concat!(
            "
    mov rax, [rip + {costs} + {",
            $cost,
            "}] // the correction, which may be negative
    mov rdx, [rcx + {overhead}]        // the address of the thread's overhead counter
    add [rdx], rax                     // correct the overhead
    add rdi, [rip + {costs} + {",
            $after,
            "}] // the part after the end time
            "
        )
    };
}

/// Replaces the time in rdi by the ticks since activation r8 was entered: subtracts the thread's
/// measuring overhead (if times are corrected) and the activation's start. The result is 0 if it
/// would be negative. Changes rax and the flags.
macro_rules! ticks {
    () => {
        "
    mov rax, [rcx + {overhead}]        // the address of the thread's overhead counter
    mov rax, [rax]                     // the overhead so far
    and rax, [rip + {parameters} + {corrects}] // 0 if times are not corrected
    sub rdi, rax                       // the end time on the thread clock
    xor eax, eax                       // the minimum, 0
    sub rdi, [r8 + {start}]            // the time since the entry
    cmovb rdi, rax                     // 0 if it is negative: the overhead exceeds the time
        "
    };
}

/// Adds the return value of the call that ends to its record: from label `58` to `55` with the
/// sequence odd, or to `54` if the value is not needed or, at a tail call, does not exist.
macro_rules! returned {
    ("") => {
        concat!(
            "
58: cmp byte ptr [r9 + {way}], {timed_result} // does the record need a result?
    jne 54b                            // no: the entry has read an argument
    mov [rcx + {scratch}], rax         // save the index of the bucket
    mov rdx, r9                        // the record, in the register that `value!` expects
    mov edi, [r8 + {function}]         // the function id
    lea r9, [rip + {details}]          // the table of value locations, 8 bytes per function
    movzx r9d, byte ptr [r9 + 8*rdi + {ret}] // the location of the return value
    mov rdi, [rsp + {result}]          // rax, as stored by the trampoline
    cmp r9d, {register}                // is it a whole register?
    ja 60f                             // no: narrow the value
61:
            ",
            $crate::arch::x86_64::quick::value::value!(timed, "8f"),
            "
    mov r9, rdx                        // the record
    mov rdi, [rcx + {now}]             // the end time
            ",
            $crate::arch::x86_64::quick::exit::ticks!(), // compute the time again
            "
    mov rax, [rcx + {scratch}]         // restore the index of the bucket
    jmp 55b                            // the record is odd: continue with the bucket
            ",
            $crate::arch::x86_64::quick::value::narrow!("8f")
        )
    };
    ($tail:tt) => {
        "
58: jmp 54b                            // {result} {scratch} {details} {ret} {register} {not_register} {half} {signed_half}
                                       // {second} {base} {column} {of_first_bucket} {of_buckets}
                                       // {of_sum} {of_upper} {of_min} {of_max} {of_histogram}
        "
    };
}

/// For times outside the inline buckets: from label `59` to `8` if a return value is needed, else
/// to `57`.
macro_rules! returns {
    ("") => {
        "
59: cmp byte ptr [r9 + {way}], {timed_result} // does the record need a result?
    jne 57b                            // no: continue with the record
    jmp 8f                             // yes: compiled code adds the value and the time
        "
    };
    ($tail:tt) => {
        "59: jmp 57b" // a tail call has no result
    };
}

pub(crate) use {
    current, end, ender, exit, lend, lent_cost, own, returned, returns, ticks, unrecorded,
};
