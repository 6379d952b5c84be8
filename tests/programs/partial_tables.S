/* Functions between those of partial_tables.c, in the same section. They have unwind entries only
 * if DESCRIBED is defined, in the build that gdb uses.
 *
 *     long aligned(long (*function)(long), long argument)
 *     long saved(long (*function)(long), long argument), which has other uses of rbx and rbp
 *     long repeated(long (*function)(long), long times), two calls a round
 *     long outer(long (*function)(long), long argument), which calls a function of no global name
 */
#ifdef DESCRIBED
#define START .cfi_startproc
#define END .cfi_endproc
#define PUSHED(name) .cfi_adjust_cfa_offset 8; .cfi_rel_offset name, 0
#define POPPED(name) .cfi_adjust_cfa_offset -8; .cfi_restore name
#define MOVED(bytes) .cfi_adjust_cfa_offset bytes
#else
#define START
#define END
#define PUSHED(name)
#define POPPED(name)
#define MOVED(bytes)
#endif

    .text

    .p2align 4
    .globl aligned
    .type aligned, @function
aligned:
    START
    sub $24, %rsp
    MOVED(24)
    mov %rdi, %rax
    mov %rsi, %rdi
    call *%rax
    inc %rax
    add $24, %rsp
    MOVED(-24)
    ret
    END
    .size aligned, . - aligned

    .p2align 4
    .globl saved
    .type saved, @function
saved:
    START
    push %rbx
    PUSHED(%rbx)
    push %rbp
    PUSHED(%rbp)
    sub $8, %rsp
    MOVED(8)
    mov %rsi, %rbx
    mov $77, %ebp
    mov %rdi, %rax
    mov %rsi, %rdi
    call *%rax
    add %rbp, %rax
    add %rbx, %rax
    add $8, %rsp
    MOVED(-8)
    pop %rbp
    POPPED(%rbp)
    pop %rbx
    POPPED(%rbx)
    ret
    END
    .size saved, . - saved

    .p2align 4
    .globl repeated
    .type repeated, @function
repeated:
    START
    push %rbx
    PUSHED(%rbx)
    push %r12
    PUSHED(%r12)
    push %r13
    PUSHED(%r13)
    mov %rdi, %rbx
    mov %rsi, %r12
    xor %r13d, %r13d
1:  test %r12, %r12
    jz 2f
    mov %r12, %rdi
    call *%rbx
    add %rax, %r13
    mov %r12, %rdi
    call *%rbx
    add %rax, %r13
    dec %r12
    jmp 1b
2:  mov %r13, %rax
    pop %r13
    POPPED(%r13)
    pop %r12
    POPPED(%r12)
    pop %rbx
    POPPED(%rbx)
    ret
    END
    .size repeated, . - repeated

    .p2align 4
    .type inner, @function
inner:
    START
    push %r14
    PUSHED(%r14)
    lea 3(%rsi), %r14
    mov %rdi, %rax
    mov %rsi, %rdi
    call *%rax
    add %r14, %rax
    pop %r14
    POPPED(%r14)
    ret
    END
    .size inner, . - inner

    .p2align 4
    .globl outer
    .type outer, @function
outer:
    START
    sub $8, %rsp
    MOVED(8)
    call inner
    add $8, %rsp
    MOVED(-8)
    ret
    END
    .size outer, . - outer

    .section .note.GNU-stack, "", @progbits
