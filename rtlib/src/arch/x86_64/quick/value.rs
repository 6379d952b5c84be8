//! A value of a call, an argument or what it returns, added to its columns.

/// From label `60` back to `61`: the value rdi as its place r9 says ([`abi::value::Place`]), where that is not all of a register; to `$else` where only
/// compiled code can tell. For a vector register that is.
macro_rules! narrow {
    ($else:literal) => {
        concat!(
            "
60: and r9d, {not_register}            // the other bits alone
    cmp r9d, {signed_half}             // the lower half, signed?
    je 62f                             // with its sign
    cmp r9d, {half}                    // the lower half?
    jne ", // a vector register, or less than half: only compiled code can tell
            $else,
            "
    mov edi, edi                       // nothing above the half
    jmp 61b                            // on with it
62: movsxd rdi, edi                    // the sign above the half
    jmp 61b                            // on with it
            "
        )
    };
}

/// Adds the value rdi to the record rdx and leaves that odd; to `$else`, with nothing done, where its columns must grow. It is for
/// the second and third column; with `alone` for the first and second one. Takes rax, rdi, and r9.
macro_rules! value {
    (alone, $else:literal) => {
        concat!(
            "
    lea r9, [rdx + {first}]            // the first column
    test rdi, rdi                      // below 0?
    js 68f                             // the second column has those
            ",
            $crate::arch::x86_64::quick::value::add!($else),
            "
68: neg rdi                            // its amount
            ",
            $crate::arch::x86_64::quick::value::second!(),
            "
    jmp 63b                            // adds that
69:
            "
        )
    };
    (timed, $else:literal) => {
        concat!(
            $crate::arch::x86_64::quick::value::second!(),
            "
    test rdi, rdi                      // below 0?
    js 68f                             // the next column has those
            ",
            $crate::arch::x86_64::quick::value::add!($else),
            "
68: neg rdi                            // the next column has those below 0
    add r9, {column}                   // that column
    jmp 63b                            // adds the amount
69:
            "
        )
    };
}

/// The second column of the record rdx into r9.
macro_rules! second {
    () => {
        "
    mov r9, [rip + {second}]           // the columns that records have besides the first,
    imul r9, rdx                       // times the record's address,
    shr r9, 1                          // half of that,
    add r9, [rip + {second} + {base}]  // and the base
        "
    };
}

/// From label `63` on: adds what rdi is, as an unsigned number, to the column r9.
macro_rules! add {
    ($else:literal) => {
        concat!(
            "
63: mov rax, rdi                       // the bucket: the logarithm
    or rax, 1                          // 0 has a bucket, too
    bsr rax, rax                       // of the value
    sub eax, [r9 + {of_first_bucket}]  // from the first of the inline buckets on
    cmp eax, {buckets}                 // below it, or above the last?
    jae 64f                            // the histogram in the pool
    inc dword ptr [rdx + {sequence}]   // odd: readers wait
    inc word ptr [r9 + 2*rax + {of_buckets}] // one more in the bucket
65: add [r9 + {of_sum}], rdi           // its sum
    mov rax, rdi                       // the upper half,
    shr rax, 32                        // for `abi::value::whole_sum`
    jnz 76f                            // added by itself if there is one
77: cmp rdi, [r9 + {of_min}]           // the smallest until now?
    jb 66f                             // it is
70: cmp rdi, [r9 + {of_max}]           // the largest until now?
    jbe 69f                            // it is not
    mov [r9 + {of_max}], rdi           // it is
    jmp 69f                            // done
66: mov [r9 + {of_min}], rdi           // kept
    jmp 70b                            // may be the largest, too
76: add [r9 + {of_upper}], rax         // the sum of upper halves
    jmp 77b                            // on with it

    // A value outside the inline buckets: the histogram in the pool.
64: add eax, [r9 + {of_first_bucket}]  // the bucket again
    push rsi                           // the function id, kept
    mov esi, [r9 + {of_histogram}]     // its number and one
    test esi, esi                      // 0: there is none yet
    jz 71f                             // compiled code makes one
    shl rsi, {histogram_bits}          // in bytes; numbers begin at 1
    lea rsi, [rsi + 8*rax - {histogram_len}] // the bucket, from the area's start
    mov rax, [rip + {parameters} + {segment}] // the segment
    add rsi, [rax + {histograms}]      // the area's offset
    add rsi, rax                       // the bucket
    mov eax, [rsi]                     // its count
    inc eax                            // with this value
    test eax, {often}                  // now and then the inline buckets are moved
    jz 71f                             // compiled code moves them
    inc dword ptr [rdx + {sequence}]   // odd: readers wait
    inc qword ptr [rsi]                // one more in the bucket
    pop rsi                            // the function id
    jmp 65b                            // to the sum
71: pop rsi                            // the function id
    jmp ", // nothing has been done yet
            $else,
            "
            "
        )
    };
}

pub(crate) use {add, narrow, second, value};
