//! The ways of a call that need no compiled code: an entry whose walk is remembered, and an exit
//! of the innermost activation. Written by hand, they use six registers, no stack, and touch the
//! lines of the thread, of the remembered walk, and of the record.
//!
//! All are text for the stubs. In: esi the function id, [rsp] the flags, rsp + [`SLOT`] the slot.
//! Out: by label `5` where the call has been recorded or is none of ours; by falling off the end,
//! with esi as it was and nothing done yet, where [`super::entry`] or [`super::exit`] must see to it.
//! An exit leaves the time it was reached in rdi then. It may have ended some of the activations; esi is any function then. Free to use are rax, rcx, rdx, rdi, r8 and r9.

/// Bytes between the stack pointer here and the application's: six registers and the flags, and what
/// the trampoline has pushed.
pub const SLOT: usize = 7 * 8 + 16;

/// To label `5` in a forked child; the thread into rcx, with the slot in rdx; to `6` where it is not found so.
macro_rules! find_thread {
    () => {
        "
    cmp dword ptr [rip + {parameters} + {rdfsbase}], 0
    jne 20f
    mov rdx, fs:[0]
21: movabs rax, {hash}
    imul rax, rdx
    shr rax, {registry_shift}
    shl eax, 4
    lea rcx, [rip + {registry}]
    add rcx, rax
    inc rdx
    cmp [rcx], rdx
    jne 6f
    mov rcx, [rcx + 8]
    test rcx, rcx
    jz 6f
    mov rax, [rcx + {tid_from_fs}]
    mov eax, [rdx + rax - 1] # rdx is the FS base and one
    cmp eax, [rcx + {tid}]
    jne 6f
    lea rdx, [rsp + {slot}]
        "
    };
}

/// Marks the thread rcx busy with the call at the slot rdx; to `6` where it is already.
macro_rules! mark {
    () => {
        "
    xor eax, eax
    cmpxchg [rcx + {busy}], rdx
    jne 6f
        "
    };
}

/// Both.
macro_rules! thread {
    () => {
        concat!(
            $crate::probe::quick::find_thread!(),
            $crate::probe::quick::mark!()
        )
    };
}

/// The time into rdi.
macro_rules! now {
    () => {
        "
    rdtsc
    shl rdx, 32
    lea rdi, [rax + rdx]
        "
    };
}

/// Out of the way: the FS base where no word tells it, and back out with nothing done.
macro_rules! out_of_line {
    () => {
        "
20: rdfsbase rdx
    jmp 21b
7:  mov qword ptr [rcx + {busy}], 0
6:
        "
    };
}

/// An entry.
macro_rules! entry {
    () => {
        concat!(
            "
    cmp dword ptr [rip + {alive}], {alive_word}
    jne 5f
    lea rdi, [rip + {functions}]
    cmp dword ptr [rdi + 8*rsi], 0
    je 5f
    test byte ptr [rdi + 8*rsi + {flags}], {is_special}
    jnz 6f
            ",
            $crate::probe::quick::thread!(),
            "
    cmp rdx, [rcx + {low}]
    jb 7f
    cmp rdx, [rcx + {high}]
    jae 7f
    mov [rcx + {entry_rbp}], rbp
    mov r8, [rip + {epoch}]
    or r8, rsi

    // The run whose key is (rdx, r8).
22: mov rax, r8
    rol rax, 32
    xor rax, rdx
    movabs r9, {hash}
    imul rax, r9
    shr rax, {memo_shift}
    shl eax, {memo_entry_bits}
    add rax, [rcx + {memo}]
    lea r9, [rax + {memo_probes}]
23: cmp [rax], rdx
    jne 24f
    cmp [rax + 8], r8
    je 25f
24: add rax, {memo_entry}
    cmp rax, r9
    jne 23b
    jmp 7f

    // Its words, each where the walk has read it.
25: mov rax, [rax + 16]
    mov r9, [rax]
    lea r8, [rax + {run}]
    cmp r8, r9
    je 27f
26: mov rdi, [r8]
    mov rdx, [r8 + 8]
    cmp [rdi], rdx
    jne 28f
    mov rdi, [r8 + 16]
    mov rdx, [r8 + 24]
    cmp [rdi], rdx
    jne 31f
    mov rdi, [r8 + 32]
    mov rdx, [r8 + 40]
    cmp [rdi], rdx
    jne 32f
    mov rdi, [r8 + 48]
    mov rdx, [r8 + 56]
    cmp [rdi], rdx
    jne 33f
    add r8, 64
    cmp r8, r9
    jne 26b

    // All are equal: rax is the run.
27: inc qword ptr [rcx + {quick_calls}]
    lea rdi, [rip + {functions}]
    test byte ptr [rdi + 8*rsi + {flags}], {has_exits}
    mov rdx, [rax + {run_record}]
    jnz 29f
    inc qword ptr [rdx + {entered}]
    mov qword ptr [rcx + {busy}], 0
    jmp 5f

    // Another run branches off there.
33: add r8, 16
32: add r8, 16
31: add r8, 16
28: mov rdx, r8
    mov r8, [rdi]
    jmp 22b

29: mov r8, [rcx + {top}]
    mov rax, [rax + {run_stack}]
    lea r9, [rsp + {slot}]
    cmp [r8 + {stack}], rax
    jne 34f
    cmp [r8 + {at}], r9
    jbe 7f
30: mov r8, [r8 + {next}]
    test r8, r8
    jz 7f
    inc qword ptr [rdx + {entered}]
    mov [r8 + {at}], r9
    mov [r8 + {stack}], rax
    mov qword ptr [r8 + {nested}], 0
    mov [r8 + {record}], rdx
    mov [r8 + {function}], esi
    mov eax, [rdi + 8*rsi]
    mov [r8 + {generation}], eax
    mov rdx, [rcx + {depths}]
    xor eax, eax
    cmp dword ptr [rdx + 4*rsi], 1
    adc eax, 0
    mov [r8 + {outermost}], eax
    inc dword ptr [rdx + 4*rsi]
    mov [rcx + {top}], r8
    rdtsc
    shl rdx, 32
    or rax, rdx
    mov [r8 + {start}], rax
    mov qword ptr [rcx + {busy}], 0
    jmp 5f

    // Another stack than that of the last call.
34: cmp dword ptr [rip + {coroutines}], 0
    je 30b
    jmp 7f
            ",
            $crate::probe::quick::out_of_line!()
        )
    };
}

/// An exit; `$tail` is more that it counts in the record r9.
macro_rules! exit {
    ($tail:expr) => {
        concat!(
            $crate::probe::quick::now!(),
            "
    cmp dword ptr [rip + {alive}], {alive_word}
    jne 5f
            ",
            $crate::probe::quick::thread!(),
            "
    mov r8, [rcx + {top}]
    cmp [r8 + {at}], rdx
    jne 7f
    cmp [r8 + {function}], esi
    jne 7f
    lea rax, [rip + {functions}]
    mov eax, [rax + 8*rsi]
    cmp eax, [r8 + {generation}]
    jne 7f
            ",
            $crate::probe::quick::end!($tail),
            $crate::probe::quick::out_of_line!()
        )
    };
}

/// A return of a function that is not measured, and so ends the activations lent to it; the same with `$tail`.
macro_rules! ender {
    ($tail:expr) => {
        concat!(
            "
    cmp dword ptr [rip + {alive}], {alive_word}
    jne 5f
            ",
            $crate::probe::quick::find_thread!(),
            "
    mov r8, [rcx + {top}]
    lea rax, [rdx + 1]
    cmp [r8 + {at}], rax
    ja 5f // what is innermost is of a frame further out: most calls
    jb 6f
            ",
            $crate::probe::quick::mark!(),
            $crate::probe::quick::now!(),
            "
    jmp 44f
            ",
            $crate::probe::quick::end!($tail),
            $crate::probe::quick::out_of_line!(),
            $crate::probe::quick::now!()
        )
    };
}

/// A tail call of a function that ends what is lent to it.
macro_rules! lend {
    () => {
        concat!(
            "
    cmp dword ptr [rip + {alive}], {alive_word}
    jne 5f
            ",
            $crate::probe::quick::thread!(),
            "
    mov r8, [rcx + {top}]
    cmp [r8 + {at}], rdx
    jne 7f
    cmp [r8 + {function}], esi
    jne 7f
    cmp dword ptr [rip + {coroutines}], 0
    jne 7f
    lea rax, [rip + {functions}]
    mov eax, [rax + 8*rsi + {flags}]
    shr eax, {lending}
    jz 7f
    // How many end with it.
    xor edi, edi
    mov r9, [r8 + {prev}]
    inc rdx
    cmp [r9 + {at}], rdx
    jne 47f
    movzx edi, word ptr [r9 + {lent}]
47: inc edi
    cmp edi, {most_lent}
    ja 7f
    shl eax, {lending}
    or eax, edi
    mov [r8 + {lent}], eax
    mov [r8 + {at}], rdx
    mov qword ptr [rcx + {busy}], 0
    jmp 5f
            ",
            $crate::probe::quick::out_of_line!(),
            $crate::probe::quick::now!()
        )
    };
}

/// Ends the innermost activation r8, of the function esi, at rdi, and from label `44` on that which is innermost now. With each
/// the next one, where it has been lent with the same slot.
macro_rules! end {
    ($tail:expr) => {
        concat!(
            "
48: sub rdi, [r8 + {start}]
    jb 8f
    mov r9, [r8 + {record}]
    test dword ptr [r9 + {closed}], {full}
    jz 8f
    cmp dword ptr [rip + {parameters} + {timers}], 1
    jne 8f

    // One of the inline buckets of the histogram.
    lea rax, [rdi + rdi]
    mul qword ptr [rip + {parameters} + {scale}]
    or rdx, 1
    bsr rax, rdx
    sub eax, [r9 + {first_bucket}]
    cmp eax, {buckets}
    jae 40f
    inc dword ptr [r9 + {sequence}]
    // They are eight counts in two words. An address that came from the clock would hold up the next
    // reading of it: that waits for the addresses of all stores before.
    xor edx, edx
    shl eax, 4
    bts rdx, rax
    cmp eax, 64
    sbb rax, rax
    mov rsi, rdx
    and rdx, rax
    sub rsi, rdx
    add [r9 + {bucket}], rdx
    add [r9 + {bucket} + 8], rsi
    mov esi, [r8 + {function}]

41: mov rax, rdi
    sub rax, [r8 + {nested}]
    mov edx, 0
    cmovb rax, rdx
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
    inc dword ptr [r9 + {sequence}]

    mov rax, [rcx + {depths}]
    sub dword ptr [rax + 4*rsi], 1
    adc dword ptr [rax + 4*rsi], 0
    mov rax, [r8 + {prev}]
    mov [rcx + {top}], rax
    add [rax + {nested}], rdi
    lea rdx, [rsp + {slot} + 1]
    cmp [rax + {at}], rdx
    je 43f
    mov qword ptr [rcx + {busy}], 0
    jmp 5f

    // The caller has left by a tail call of this one.
43: add rdi, [r8 + {start}]
44: mov r8, [rcx + {top}]
    mov esi, [r8 + {function}]
    lea rax, [rip + {functions}]
    mov edx, [rax + 8*rsi + {flags}]
    xor edx, [r8 + {lent}]
    shr edx, {lending}
    jnz 7f
    mov eax, [rax + 8*rsi]
    cmp eax, [r8 + {generation}]
    je 48b
    jmp 7f

    // A value outside them: the histogram in the pool.
40: add eax, [r9 + {first_bucket}]
    mov edx, [r9 + {histogram}]
    test edx, edx
    jz 8f
    shl rdx, {histogram_bits}
    lea rdx, [rdx + 8*rax - {histogram_len}]
    mov rax, [rip + {parameters} + {segment}]
    add rdx, [rax + {histograms}]
    add rdx, rax
    mov eax, [rdx]
    inc eax
    test eax, {often}
    jz 8f
    inc dword ptr [r9 + {sequence}]
    inc qword ptr [rdx]
    jmp 41b
8:  add rdi, [r8 + {start}]
    jmp 7f
            "
        )
    };
}

pub(crate) use {end, ender, entry, exit, find_thread, lend, mark, now, out_of_line, thread};
