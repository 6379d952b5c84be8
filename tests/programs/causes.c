/* Calls of `work` at which a walk cannot continue, for four reasons. Prints the number for each as
 * `causes NAME N`, and the calls. */
#define _GNU_SOURCE
#include "counted.h"

#include <setjmp.h>
#include <signal.h>
#include <stdio.h>

#define CODE(name, body) \
    __asm__(".globl " name "\n.type " name ", @function\n" name ":\n" body "\n.size " name ", . - " name "\n")

/* Takes as much of the stack as its argument says, and keeps the old position only in r12. */
void no_rule(long bytes);
CODE("no_rule", "push %r12\nmov %rsp, %r12\nsub %rdi, %rsp\nmov $1, %edi\ncall work\nmov %r12, %rsp\npop %r12\nret");
/* Makes `work` return to an address that follows no call. */
void no_call(void);
CODE("no_call", ".cfi_startproc\nsub $8, %rsp\n.cfi_adjust_cfa_offset 8\nlea 1f(%rip), %rax\npush %rax\nmov $1, %edi\n"
                "jmp work\nnop\n1: add $8, %rsp\n.cfi_adjust_cfa_offset -16\nret\n.cfi_endproc");
/* Calls `work` in this way, where a walk needs more than the stack pointer and rbp, and in another
 * way. */
long by_rbx(long x);
CODE("by_rbx", ".cfi_startproc\npush %rbx\n.cfi_def_cfa_offset 16\n.cfi_offset %rbx, -16\nmov %rsp, %rbx\n"
               ".cfi_def_cfa_register %rbx\nmov $1, %edi\ncall work\n.cfi_def_cfa %rsp, 16\npop %rbx\n"
               ".cfi_def_cfa_offset 8\nret\n.cfi_endproc");
void no_call_to(long x, long (*function)(long));
CODE("no_call_to", "push %rbp\nxor %ebp, %ebp\nlea 1f(%rip), %rax\npush %rax\njmp *%rsi\n.skip 8, 0x90\n1: pop %rbp\nret");
/* Its unwind entry claims that its frame is at rbp, which is wrong. */
void off_stack(void);
CODE("off_stack", ".cfi_startproc\npush %rbp\n.cfi_def_cfa_offset 16\n.cfi_offset %rbp, -16\n.cfi_def_cfa_register %rbp\n"
                  "mov $64, %ebp\nmov $1, %edi\ncall work\npop %rbp\n.cfi_def_cfa %rsp, 8\nret\n.cfi_endproc");
/* Is interrupted with a register on the stack, and has no unwind entry. */
void interrupted(void);
CODE("interrupted", "push %rax\nud2\npop %rax\nret");

static sigjmp_buf back;

static void on_signal(int signal)
{
    volatile long result = work(signal);
    (void)result;
    siglongjmp(back, 1);
}

int main(void)
{
    enum { NO_RULE = 3, NO_CALL = 4, OTHER_NO_CALL = 20, OFF_STACK = 5, INTERRUPTED = 6 };
    signal(SIGILL, on_signal);
    for (int i = 0; i < NO_RULE; i++)
        no_rule(64 + 32 * i);
    for (int i = 0; i < NO_CALL; i++)
        no_call();
    for (int i = 0; i < OTHER_NO_CALL; i++)
        no_call_to(i, i % 4 ? work : by_rbx);
    for (int i = 0; i < OFF_STACK; i++)
        off_stack();
    for (volatile int i = 0; i < INTERRUPTED; i++)
        if (sigsetjmp(back, 1) == 0)
            interrupted();
    printf("causes no-unwind-rule %d\ncauses no-return-address %d\ncauses off-stack %d\ncauses interrupted %d\n", NO_RULE,
           NO_CALL + OTHER_NO_CALL, OFF_STACK, INTERRUPTED);
    printf("calls work %ld\n", calls);
    return 0;
}
