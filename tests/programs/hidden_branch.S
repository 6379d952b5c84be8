/* The function `outer` jumps into `counted` by an instruction that a byte of data before it hides from
 * a disassembler that goes on after jumps. See hidden_branch.c. */
    .text
    .globl outer
    .type outer, @function
outer:
    jmp 1f
    .byte 0xb8                  /* as if `mov eax, imm32` began here */
1:  .byte 0xe9                  /* jmp inner */
    .long inner - . - 4
    nop
    nop
    ret
    .size outer, . - outer
    .skip 200, 0x90

    .globl counted
    .type counted, @function
counted:
    leal 1(%rdi), %eax
    testl %edi, %edi
    je inner
    imull %edi, %eax
    addl $5, %eax
    nopl 0(%rax)
inner:
    addl $7, %edi
    nopl 0(%rax)
    movl %edi, %eax
    nopl 0(%rax)
    ret
    .size counted, . - counted
    .section .note.GNU-stack, "", @progbits
