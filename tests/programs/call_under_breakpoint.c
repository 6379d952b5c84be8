/* Calls whose first byte is a breakpoint until SIGUSR1 arrives. The program plays the owner of the
 * breakpoints itself: its SIGTRAP handler pushes the return address and jumps to the callee, as the
 * kernel emulates a call under a uprobe (arch/x86/kernel/uprobes.c, branch_emulate_op).
 *
 *     call_under_breakpoint
 *
 * Prints `ready` once the breakpoints are set, and `gone` once they are removed. Ends on SIGTERM
 * with a line `ok calls N`, the calls of `leaf`. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

uint64_t leaf_calls;
long leaf(long x);
long (*leaf_pointer)(long) = leaf;
long by_displacement(long), by_register(long), by_memory(long), framed(long), framed_by_register(long);

/* Each call has a label in front of it. */
asm(".text\n"
    ".globl leaf\n.type leaf,@function\n"
    "leaf: .cfi_startproc\n nopl 0(%rax,%rax,1)\n incq leaf_calls(%rip)\n lea 1(%rdi),%rax\n"
    " nopl 0(%rax,%rax,1)\n ret\n.cfi_endproc\n.size leaf,.-leaf\n"
#define TABLED(NAME, CALL)                                                                         \
    ".p2align 4\n.globl " NAME "\n.type " NAME ",@function\n" NAME ": .cfi_startproc\n"            \
    " push %rbx\n.cfi_adjust_cfa_offset 8\n.cfi_offset rbx,-16\n mov %rdi,%rbx\n"                  \
    " mov leaf_pointer(%rip),%rax\n" NAME "_call: " CALL "\n add %rbx,%rax\n pop %rbx\n"           \
    ".cfi_adjust_cfa_offset -8\n ret\n.cfi_endproc\n.size " NAME ",.-" NAME "\n"
#define FRAMED(NAME, CALL)                                                                         \
    ".p2align 4\n.globl " NAME "\n.type " NAME ",@function\n" NAME ":\n"                           \
    " push %rbp\n mov %rsp,%rbp\n push %rbx\n sub $8,%rsp\n mov %rdi,%rbx\n"                       \
    " mov leaf_pointer(%rip),%rax\n" NAME "_call: " CALL "\n add %rbx,%rax\n add $8,%rsp\n"        \
    " pop %rbx\n pop %rbp\n ret\n.size " NAME ",.-" NAME "\n"
    TABLED("by_displacement", "call leaf")
    TABLED("by_register", "call *%rax")
    TABLED("by_memory", "call *leaf_pointer(%rip)")
    FRAMED("framed", "call leaf")
    FRAMED("framed_by_register", "call *%rax"));

extern unsigned char by_displacement_call[], by_register_call[], by_memory_call[], framed_call[],
    framed_by_register_call[];

static const struct {
    unsigned char *at;
    int length;
} calls[] = {
    {by_displacement_call, 5}, {by_register_call, 2},        {by_memory_call, 6},
    {framed_call, 5},          {framed_by_register_call, 2},
};
#define CALLS (sizeof calls / sizeof *calls)

static unsigned char original[CALLS];
static volatile sig_atomic_t go, end;

static void on_trap(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)info;
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    for (unsigned i = 0; i < CALLS; i++) {
        if ((uintptr_t)registers[REG_RIP] != (uintptr_t)calls[i].at + 1)
            continue;
        registers[REG_RSP] -= 8;
        *(uintptr_t *)registers[REG_RSP] = (uintptr_t)calls[i].at + calls[i].length;
        registers[REG_RIP] = (greg_t)leaf;
        return;
    }
    _exit(3);
}

static void on_signal(int signal)
{
    if (signal == SIGUSR1)
        go = 1;
    else
        end = 1;
}

static void set_writable(int protection)
{
    uintptr_t page = (uintptr_t)by_displacement_call & -4096ul;
    if (mprotect((void *)page, 8192, protection))
        _exit(4);
}

__attribute__((noinline, noclone)) static long all(long x)
{
    return by_displacement(x) + by_register(x) + by_memory(x) + framed(x) + framed_by_register(x);
}

int main(void)
{
    struct sigaction trap = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigaction(SIGTRAP, &trap, NULL);
    signal(SIGUSR1, on_signal);
    signal(SIGTERM, on_signal);
    set_writable(PROT_READ | PROT_WRITE | PROT_EXEC);
    for (unsigned i = 0; i < CALLS; i++) {
        original[i] = *calls[i].at;
        *calls[i].at = 0xcc;
    }
    set_writable(PROT_READ | PROT_EXEC);
    puts("ready");
    fflush(stdout);
    long sum = 0;
    for (int are_in = 1; !end;) {
        sum += all(1);
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
        if (go && are_in) {
            set_writable(PROT_READ | PROT_WRITE | PROT_EXEC);
            for (unsigned i = 0; i < CALLS; i++)
                *calls[i].at = original[i];
            set_writable(PROT_READ | PROT_EXEC);
            are_in = 0;
            puts("gone");
            fflush(stdout);
        }
    }
    printf("ok calls %lu\n", (unsigned long)(leaf_calls + 0 * (uint64_t)sum));
    return 0;
}
