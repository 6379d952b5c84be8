/* The tracer that functions compiled with -pg -mfentry call first. Counts, and sums up its callers.
 */
    .text
    .globl __fentry__
    .type __fentry__, @function
__fentry__:
    .cfi_startproc
    push %rax
    .cfi_def_cfa_offset 16
    pushf
    .cfi_def_cfa_offset 24
    mov 16(%rsp), %rax
    add %rax, fentry_places(%rip)
    incq fentry_calls(%rip)
    popf
    .cfi_def_cfa_offset 16
    pop %rax
    .cfi_def_cfa_offset 8
    ret
    .cfi_endproc
    .size __fentry__, . - __fentry__

    .bss
    .balign 8
    .globl fentry_calls, fentry_places
fentry_calls: .quad 0
fentry_places: .quad 0
    .section .note.GNU-stack, "", @progbits
