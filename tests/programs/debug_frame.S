/* Functions whose stack pointer moves by the value of a register, so only their unwind entries
 * locate their callers. The entries are only in `.debug_frame`.
 *
 *     long moved(long (*function)(long), long argument)
 *     long moved_with_rbp(long (*function)(long), long argument), which has another use of rbp
 */
    .cfi_sections .debug_frame
    .text

    .globl moved
    .type moved, @function
moved:
    .cfi_startproc
    push %rbx
    .cfi_adjust_cfa_offset 8
    .cfi_offset %rbx, -16
    mov $48, %ebx
    sub %rbx, %rsp
    .cfi_adjust_cfa_offset 48
    mov %rdi, %rax
    mov %rsi, %rdi
    call *%rax
    add %rbx, %rsp
    .cfi_adjust_cfa_offset -48
    pop %rbx
    .cfi_adjust_cfa_offset -8
    .cfi_restore %rbx
    ret
    .cfi_endproc
    .size moved, . - moved

    .globl moved_with_rbp
    .type moved_with_rbp, @function
moved_with_rbp:
    .cfi_startproc
    push %rbp
    .cfi_adjust_cfa_offset 8
    .cfi_offset %rbp, -16
    mov $4096, %ebp
    sub %rbp, %rsp
    .cfi_adjust_cfa_offset 4096
    mov %rdi, %rax
    mov %rsi, %rdi
    call *%rax
    add %rbp, %rsp
    .cfi_adjust_cfa_offset -4096
    pop %rbp
    .cfi_adjust_cfa_offset -8
    .cfi_restore %rbp
    ret
    .cfi_endproc
    .size moved_with_rbp, . - moved_with_rbp

    .section .note.GNU-stack, "", @progbits
