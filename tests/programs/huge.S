/* A library of 150 MB: 300,000 functions of 512 bytes each, every one with a symbol and an unwind
 * entry. All but the last call their argument, each with a frame of a different size.
 *
 *     long huge_N(long (*function)(long), long argument)
 *     long huge_work(long argument)
 */
#define FUNCTIONS 300000

    .macro passes_on
    .globl huge_\@
    .type huge_\@, @function
huge_\@:
    .cfi_startproc
    push %rbx
    .cfi_adjust_cfa_offset 8
    .cfi_offset %rbx, -16
    sub $(16 * (\@ % 7)), %rsp
    .cfi_adjust_cfa_offset 16 * (\@ % 7)
    mov %rdi, %rax
    mov %rsi, %rdi
    lea 1(%rsi), %rbx
    call *%rax
    add %rbx, %rax
    add $(16 * (\@ % 7)), %rsp
    .cfi_adjust_cfa_offset -16 * (\@ % 7)
    pop %rbx
    .cfi_adjust_cfa_offset -8
    .cfi_restore %rbx
    ret
    .cfi_endproc
    .size huge_\@, . - huge_\@
    .p2align 9, 0xcc
    .endm

    .text
    .p2align 9
    .rept FUNCTIONS
    passes_on
    .endr

    .globl huge_work
    .type huge_work, @function
huge_work:
    .cfi_startproc
    lea 5(%rdi, %rdi, 2), %rax
    xor $3, %rax
    ret
    .cfi_endproc
    .size huge_work, . - huge_work

    .section .note.GNU-stack, "", @progbits
