/* main calls outer, which calls middle, which calls inner, which calls work. The unwind entry of
 * inner claims a frame two words larger than the real one, so a walk takes the return address into
 * outer for the one into middle. */
    .text
    .globl work
    .type work, @function
work:
    .cfi_startproc
    lea 1(%rdi), %rax
    nop
    nop
    ret
    .cfi_endproc
    .size work, . - work

    .type inner, @function
inner:
    .cfi_startproc
    sub $8, %rsp
    .cfi_def_cfa_offset 32
    call work
    add $8, %rsp
    .cfi_def_cfa_offset 8
    ret
    .cfi_endproc
    .size inner, . - inner

    .type middle, @function
middle:
    .cfi_startproc
    sub $8, %rsp
    .cfi_def_cfa_offset 16
    call inner
    add $8, %rsp
    .cfi_def_cfa_offset 8
    ret
    .cfi_endproc
    .size middle, . - middle

    .type outer, @function
outer:
    .cfi_startproc
    sub $8, %rsp
    .cfi_def_cfa_offset 16
    call middle
    add $8, %rsp
    .cfi_def_cfa_offset 8
    ret
    .cfi_endproc
    .size outer, . - outer

    .globl main
    .type main, @function
main:
    .cfi_startproc
    push %rbx
    .cfi_def_cfa_offset 16
    .cfi_offset %rbx, -16
    mov $10, %ebx
1:  mov %rbx, %rdi
    call outer
    dec %ebx
    jnz 1b
    xor %eax, %eax
    pop %rbx
    .cfi_def_cfa_offset 8
    ret
    .cfi_endproc
    .size main, . - main
    .section .note.GNU-stack, "", @progbits
