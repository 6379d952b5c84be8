/* Receives a signal at every instruction of `stepped` and its callees, including prologues and
 * epilogues. The trap flag raises SIGTRAP after each instruction (Intel SDM volume 3, 17.3.1.4),
 * and the handler calls `work`. `stepped WHERE`, on the same stack (`same`) or on an alternate one
 * (`alternate`). Prints its calls. */
#define _GNU_SOURCE
#include "counted.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

/* Keeps six values across a call, so that its epilogue pops six registers. */
NOINLINE static long leaf(long a, long b) { return a * 7 + b; }
NOINLINE static long stepped(long a, long b, long c, long d, long e, long f)
{
    long sum = leaf(a, b);
    sum += leaf(c, d) * a + b;
    sum += leaf(e, f) * c + d;
    return sum + leaf(a, f) * e + f;
}

static void on_step(int signal)
{
    volatile long result = work(signal);
    (void)result;
}

/* In assembly, with unwind entries for the instructions between the push and the pop. */
void set_trap_flag(void);
void clear_trap_flag(void);
#define CHANGE(name, change)                                                                     \
    __asm__(".globl " name "\n.type " name ", @function\n" name ":\n.cfi_startproc\n"              \
            "pushfq\n.cfi_adjust_cfa_offset 8\n" change "\npopfq\n.cfi_adjust_cfa_offset -8\n"    \
            "ret\n.cfi_endproc\n.size " name ", . - " name "\n")
CHANGE("set_trap_flag", "orq $0x100, (%rsp)");
CHANGE("clear_trap_flag", "andq $~0x100, (%rsp)");

int main(int argc, char **argv)
{
    static char memory[65536];
    stack_t alternate = {.ss_sp = memory, .ss_size = sizeof memory};
    int is_alternate = argc > 1 && strcmp(argv[1], "alternate") == 0;
    struct sigaction action = {.sa_handler = on_step, .sa_flags = is_alternate ? SA_ONSTACK : 0};
    if (sigaltstack(&alternate, NULL) != 0 || sigaction(SIGTRAP, &action, NULL) != 0)
        return 2;
    long sum = 0;
    for (long round = 0; round < 100; round++) {
        set_trap_flag();
        sum += stepped(round, 2, 3, 4, 5, 6);
        clear_trap_flag();
    }
    printf("calls work %ld\n", calls);
    return sum == 42;
}
