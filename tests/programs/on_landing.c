/* Steps through function calls. The handler of SIGTRAP waits between the two jumps of a patch, a
 * short and a long one. Such patches are at the entry of `first`, at the return of `last`, and at
 * the entry of `hosted`, whose long jump fits only inside its own code.
 *
 * Each SIGUSR1 leads to the next line: `ready`; for each function that an argument names `on NAME`
 * in the handler and `off NAME` after the call has returned; at the end `ok`. */
#include "function.h"
#include "gate.h"
#include <stdbool.h>
#include <ucontext.h>

#define TRAP_FLAG 0x100

/* Three times `x`; `last` sets these flags. */
long first(long x, long flags);
long last(long x, long flags);
long hosted(long x, long flags);

__asm__(".text\n"
        ".macro triple name\n"
        "function \\name\n"
        "  xor %eax, %eax\n"
        "1: lea 1(%rax), %rax\n"
        "  lea 2(%rax), %rax\n"
        "  dec %rdi\n"
        "  mov %rdi, %rcx\n"
        "  jrcxz 2f\n"
        "  jmp 1b\n"
        "2: ret\n"
        "end \\name\n"
        ".endm\n"

        "triple first\n"
        ".skip 16, 0xcc\n"

        "function last\n"
        "  push %rdi\n"
        "  lea (%rdi,%rdi,2), %rax\n"
        "  pushfq\n"
        "  or %rsi, (%rsp)\n"
        "  popfq\n"
        "  test %rdi, %rdi\n"
        "  js 2f\n"
        "1: pop %rdi\n"
        "  ret\n"
        "2: xor %eax, %eax\n"
        "  jmp 1b\n"
        "end last\n"
        ".skip 16, 0xcc\n"

        /* There is no padding nearby. */
        ".fill 128, 2, 0xc031\n"
        "triple hosted\n"
        ".fill 128, 2, 0xc031\n");

static const char *name;
static const unsigned char *before;
static volatile bool has_stood;

static void set_trap_flag(bool on)
{
    if (on)
        __asm__ volatile("lea -128(%%rsp), %%rsp\npushfq\norq $0x100, (%%rsp)\npopfq\n"
                         "lea 128(%%rsp), %%rsp" ::: "memory", "cc");
    else
        __asm__ volatile("lea -128(%%rsp), %%rsp\npushfq\nandq $~0x100, (%%rsp)\npopfq\n"
                         "lea 128(%%rsp), %%rsp" ::: "memory", "cc");
}

static void on_step(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)info;
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    const unsigned char *last_pc = before, *pc = (const unsigned char *)registers[REG_RIP];
    before = pc;
    if (last_pc == NULL || *last_pc != 0xeb || *pc != 0xe9)
        return;
    has_stood = true;
    registers[REG_EFL] &= ~(long)TRAP_FLAG;
    printf("on %s\n", name);
    fflush(stdout);
    await_test(SIGUSR1);
}

int main(int argc, char **argv)
{
    await_nothing_yet();
    static char memory[65536];
    stack_t alternate = {.ss_sp = memory, .ss_size = sizeof memory};
    bool is_alternate = argc > 1 && strcmp(argv[1], "alternate") == 0;
    struct sigaction action = {.sa_sigaction = on_step,
                               .sa_flags = SA_SIGINFO | (is_alternate ? SA_ONSTACK : 0)};
    if (sigaltstack(&alternate, NULL) != 0 || sigaction(SIGTRAP, &action, NULL) != 0)
        gate_fail("on_landing");
    say("ready");
    long wrong = 0;
    for (int i = 2; i < argc; i++) {
        bool is_last = strcmp(argv[i], "last") == 0;
        long (*function)(long, long) = is_last ? last : *argv[i] == 'h' ? hosted : first;
        await_test(SIGUSR1);
        name = argv[i];
        before = NULL;
        has_stood = false;
        /* `last` is not stepped at its entry: the runtime blocks signals, and a blocked SIGTRAP is
         * fatal. */
        set_trap_flag(!is_last);
        long got = function(7, is_last ? TRAP_FLAG : 0);
        set_trap_flag(false);
        wrong += got != 21 || !has_stood;
        for (long x = 1; x <= 1000; x++)
            wrong += function(x, 0) != 3 * x;
        printf("off %s\n", name);
        fflush(stdout);
    }
    await_test(SIGUSR1);
    say(wrong ? "wrong" : "ok");
    return wrong != 0;
}
