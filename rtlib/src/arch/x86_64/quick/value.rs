//! A value of a call, an argument or what it returns, added to its columns.

/// From label `60` back to `61`: the value rdi as its place r9 says ([`abi::value::Place`]), where that is not all of a register; to `$else` where only
/// compiled code can tell. For a vector register that is.
macro_rules! narrow {
    ($else:literal) => {
        concat!(
            "
60: and r9d, {not_register}
    cmp r9d, {signed_half}
    je 62f
    cmp r9d, {half}
    jne ",
            $else,
            "
    mov edi, edi
    jmp 61b
62: movsxd rdi, edi
    jmp 61b
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
    lea r9, [rdx + {first}]
    test rdi, rdi
    js 68f
            ",
            $crate::arch::x86_64::quick::value::add!($else),
            "
68: neg rdi
            ",
            $crate::arch::x86_64::quick::value::second!(),
            "
    jmp 63b
69:
            "
        )
    };
    (timed, $else:literal) => {
        concat!(
            $crate::arch::x86_64::quick::value::second!(),
            "
    test rdi, rdi
    js 68f
            ",
            $crate::arch::x86_64::quick::value::add!($else),
            "
68: neg rdi                            // the next column has those below 0
    add r9, {column}
    jmp 63b
69:
            "
        )
    };
}

/// The second column of the record rdx into r9.
macro_rules! second {
    () => {
        "
    mov r9, [rip + {second}]
    imul r9, rdx
    shr r9, 1
    add r9, [rip + {second} + {base}]
        "
    };
}

/// From label `63` on: adds what rdi is, as an unsigned number, to the column r9.
macro_rules! add {
    ($else:literal) => {
        concat!(
            "
63: mov rax, rdi
    or rax, 1                          // 0 has a bucket, too
    bsr rax, rax
    sub eax, [r9 + {of_first_bucket}]
    cmp eax, {buckets}
    jae 64f
    inc dword ptr [rdx + {sequence}]   // odd: readers wait
    inc word ptr [r9 + 2*rax + {of_buckets}]
65: add [r9 + {of_sum}], rdi
    mov rax, rdi
    shr rax, 32                        // for `abi::value::whole_sum`
    jnz 76f
77: cmp rdi, [r9 + {of_min}]
    jb 66f
70: cmp rdi, [r9 + {of_max}]
    jbe 69f
    mov [r9 + {of_max}], rdi
    jmp 69f
66: mov [r9 + {of_min}], rdi
    jmp 70b
76: add [r9 + {of_upper}], rax
    jmp 77b

    // A value outside the inline buckets: the histogram in the pool.
64: add eax, [r9 + {of_first_bucket}]
    push rsi
    mov esi, [r9 + {of_histogram}]
    test esi, esi
    jz 71f
    shl rsi, {histogram_bits}
    lea rsi, [rsi + 8*rax - {histogram_len}]
    mov rax, [rip + {parameters} + {segment}]
    add rsi, [rax + {histograms}]
    add rsi, rax
    mov eax, [rsi]
    inc eax
    test eax, {often}                  // now and then the inline buckets are moved
    jz 71f
    inc dword ptr [rdx + {sequence}]
    inc qword ptr [rsi]
    pop rsi
    jmp 65b
71: pop rsi
    jmp ",
            $else,
            "
            "
        )
    };
}

pub(crate) use {add, narrow, second, value};
