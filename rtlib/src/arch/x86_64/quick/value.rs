//! Adds a value of a call, an argument or a return value, to its columns.

/// From label `60` back to `61`: narrows the value rdi if its location r9
/// ([`abi::value::ValueLocation`]) is not a whole register. Jumps to `$else` if only compiled code
/// can do that, as for a vector register.
macro_rules! narrow {
    ($else:literal) => {
        concat!(
            "
60: and r9d, {not_register}            // the location without the register number
    cmp r9d, {signed_half}             // the lower half, signed?
    je 62f                             // yes: sign-extend it
    cmp r9d, {half}                    // the lower half, unsigned?
    jne ", // a vector register or a smaller part: use compiled code
            $else,
            "
    mov edi, edi                       // zero-extend the lower half
    jmp 61b                            // continue with the narrowed value
62: movsxd rdi, edi                    // sign-extend the lower half
    jmp 61b                            // continue with the narrowed value
            "
        )
    };
}

/// Adds the value rdi to the record rdx and leaves the sequence odd. Jumps to `$else`, with nothing
/// done, if its columns must grow. `timed` uses the second and third column, `alone` the first and
/// second. Changes rax, rdi and r9.
macro_rules! value {
    (alone, $else:literal) => {
        concat!(
            "
    lea r9, [rdx + {first}]            // the first column
    test rdi, rdi                      // is the value negative?
    js 68f                             // yes: it goes into the second column
            ",
            $crate::arch::x86_64::quick::value::add!($else),
            "
68: neg rdi                            // the absolute value
            ",
            $crate::arch::x86_64::quick::value::second!(),
            "
    jmp 63b                            // add it to the second column
69:
            "
        )
    };
    (timed, $else:literal) => {
        concat!(
            $crate::arch::x86_64::quick::value::second!(),
            "
    test rdi, rdi                      // is the value negative?
    js 68f                             // yes: it goes into the third column
            ",
            $crate::arch::x86_64::quick::value::add!($else),
            "
68: neg rdi                            // the absolute value
    add r9, {column}                   // the next column
    jmp 63b                            // add the absolute value to it
69:
            "
        )
    };
}

/// Loads the address of the second column of the record rdx into r9.
macro_rules! second {
    () => {
        "
    mov r9, [rip + {second}]           // the number of further columns per record
    imul r9, rdx                       // times the address of the record
    shr r9, 1                          // divided by 2: address / 2 * factor
    add r9, [rip + {second} + {base}]  // plus the constant term
        "
    };
}

/// From label `63` on: adds rdi, as an unsigned number, to the column r9.
macro_rules! add {
    ($else:literal) => {
        concat!(
            "
63: mov rax, rdi                       // copy the value to compute its bucket
    or rax, 1                          // give 0 a logarithm
    bsr rax, rax                       // the logarithm, which is the bucket number
    sub eax, [r9 + {of_first_bucket}]  // the index from the first inline bucket
    cmp eax, {buckets}                 // is it outside the inline buckets?
    jae 64f                            // yes: use the histogram in the pool
    inc dword ptr [rdx + {sequence}]   // odd: readers wait
    inc word ptr [r9 + 2*rax + {of_buckets}] // increment the bucket
65: add [r9 + {of_sum}], rdi           // add the value to the sum
    mov rax, rdi                       // copy the value
    shr rax, 32                        // the upper half, for `abi::value::whole_sum`
    jnz 76f                            // not 0: add it to the sum of upper halves
77: cmp rdi, [r9 + {of_min}]           // is the value below the minimum?
    jb 66f                             // yes: update the minimum
70: cmp rdi, [r9 + {of_max}]           // is the value above the maximum?
    jbe 69f                            // no: done
    mov [r9 + {of_max}], rdi           // store the new maximum
    jmp 69f                            // done
66: mov [r9 + {of_min}], rdi           // store the new minimum
    jmp 70b                            // it may be the maximum, too
76: add [r9 + {of_upper}], rax         // add to the sum of upper halves
    jmp 77b                            // continue with the minimum

    // A value outside the inline buckets is added to the histogram in the pool.
64: add eax, [r9 + {of_first_bucket}]  // the bucket number again
    push rsi                           // save the function id; rsi is used below
    mov esi, [r9 + {of_histogram}]     // the number of the histogram, starting at 1
    test esi, esi                      // 0 if there is no histogram
    jz 71f                             // none: compiled code allocates one
    shl rsi, {histogram_bits}          // the number times the size of a histogram
    lea rsi, [rsi + 8*rax - {histogram_len}] // offset of the bucket from the area
    mov rax, [rip + {parameters} + {segment}] // the address of the segment
    add rsi, [rax + {histograms}]      // add the offset of the area in the segment
    add rsi, rax                       // the address of the bucket
    mov eax, [rsi]                     // the count of the bucket
    inc eax                            // the count with this value
    test eax, {often}                  // is it time to review the choice of inline buckets?
    jz 71f                             // yes: compiled code does that
    inc dword ptr [rdx + {sequence}]   // odd: readers wait
    inc qword ptr [rsi]                // increment the bucket
    pop rsi                            // restore the function id
    jmp 65b                            // continue with the sum
71: pop rsi                            // restore the function id
    jmp ", // nothing has been changed yet
            $else,
            "
            "
        )
    };
}

pub(crate) use {add, narrow, second, value};
