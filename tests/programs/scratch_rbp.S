/* Functions without unwind entries that have non-standard conventions: `keeps_a_number` has a
 * number in rbp, which its caller saved. `amid` is a label inside `around`, where the stack differs
 * from that at an entry. */
    .text
    .globl around, outer
    .type outer, @function
outer:
    push %rbp
    push %rbx
    sub $8, %rsp
    call keeps_a_number
    add $8, %rsp
    pop %rbx
    pop %rbp
    ret
    .size outer, . - outer

    .type keeps_a_number, @function
keeps_a_number:
    xor %ebp, %ebp
    sub $8, %rsp
    mov %ebp, %edi
    call work
    add $8, %rsp
    ret
    .size keeps_a_number, . - keeps_a_number

    .type around, @function
around:
    push %rbx
    jmp amid
back:
    pop %rbx
    ret
    .size around, . - around

    .type amid, @function
amid:
    mov $1, %edi
    call work
    jmp back
    .size amid, . - amid
    .section .note.GNU-stack, "", @progbits
