/* Calls `work` from a function with a frame pointer and correct unwind entries, after a call of a
 * function that pops its arguments off the stack.
 *
 *     callee_pops CALLS
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))

static long calls;

__asm__(".text\n"
        ".type callee_pops, @function\n"
        "callee_pops: .cfi_startproc\n"
        "ret $16\n"
        ".cfi_endproc\n"
        ".size callee_pops, . - callee_pops\n"
        ".globl frame\n"
        ".type frame, @function\n"
        "frame: .cfi_startproc\n"
        "push %rbp\n"
        ".cfi_def_cfa_offset 16\n"
        ".cfi_offset 6, -16\n"
        "mov %rsp, %rbp\n"
        ".cfi_def_cfa_register 6\n"
        "sub $32, %rsp\n"
        "mov %rdi, -8(%rbp)\n"
        "push %rsi\n"
        "push %rsi\n"
        "call callee_pops\n"
        "call *-8(%rbp)\n"
        "leave\n"
        ".cfi_def_cfa 7, 8\n"
        "ret\n"
        ".cfi_endproc\n"
        ".size frame, . - frame\n");

void frame(void (*function)(void), long x);

NOINLINE void work(void)
{
    calls++;
    __asm__("");
}

NOINLINE void use(long x)
{
    frame(work, x);
    __asm__("");
}

int main(int argc, char **argv)
{
    for (long i = 0; argc > 1 && i < atol(argv[1]); i++) {
        use(i);
        usleep(500);
    }
    printf("calls work %ld\n", calls);
    return 0;
}
