/* User threads on adjacent stacks of STACK bytes each, which a timer preempts. The handler, on an
 * alternate stack, replaces the registers of the interrupted thread by those of the next one. Each
 * thread calls `outer`, which calls `work` twice, and checks the result. Ends after SWITCHES;
 * prints the number of calls that have returned. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))
enum { THREADS = 16, SWITCHES = 20000, SLICE_US = 50 };

static const int kept[] = {REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15, REG_RDI,
                           REG_RSI, REG_RBP, REG_RBX, REG_RDX, REG_RAX, REG_RCX, REG_RSP, REG_RIP, REG_EFL};
static char stacks[THREADS][STACK] __attribute__((aligned(16)));
static gregset_t registers[THREADS];
static int running;
static long switches;
static volatile long calls[THREADS];

NOINLINE long work(long x) { return x * 3 + 1; }
NOINLINE long outer(long x) { return work(x) + work(x + 1); }

static void body(int number)
{
    for (long x = number;; x = (x * 5 + 1) & 0xffff) {
        if (outer(x) != x * 6 + 5)
            _exit(3);
        calls[number]++;
    }
}

static void preempt(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    (void)info;
    greg_t *now = ((ucontext_t *)context)->uc_mcontext.gregs;
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        registers[running][kept[i]] = now[kept[i]];
    running = (running + 1) % THREADS;
    if (++switches == SWITCHES) {
        long all = 0;
        for (int i = 0; i < THREADS; i++)
            all += calls[i];
        char line[64];
        int length = snprintf(line, sizeof line, "calls outer %ld\n", all);
        _exit(write(1, line, (size_t)length) != length);
    }
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        now[kept[i]] = registers[running][kept[i]];
}

int main(void)
{
    static ucontext_t contexts[THREADS];
    stack_t alternate = {.ss_sp = malloc(65536), .ss_size = 65536};
    sigaltstack(&alternate, NULL);
    for (int i = 0; i < THREADS; i++) {
        getcontext(&contexts[i]);
        contexts[i].uc_stack.ss_sp = stacks[i];
        contexts[i].uc_stack.ss_size = STACK;
        makecontext(&contexts[i], (void (*)(void))body, 1, i);
        memcpy(registers[i], contexts[i].uc_mcontext.gregs, sizeof registers[i]);
        registers[i][REG_EFL] = 0x202;
    }
    struct sigaction action = {.sa_sigaction = preempt, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval slice = {{0, SLICE_US}, {0, SLICE_US}};
    setitimer(ITIMER_REAL, &slice, NULL);
    setcontext(&contexts[0]);
    return 2;
}
