/* Two contexts of makecontext(3) on one thread, switched at every step. A third one returns through
 * its link. Each calls `work`. Prints its own number of calls and a checksum. */
#include <stdio.h>
#include <ucontext.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))
#define STEPS 50

static ucontext_t from, contexts[3];
static char stacks[3][65536];
static long calls, sum;

NOINLINE long work(long x)
{
    calls++;
    return x * 3 + 1;
}

NOINLINE static long through(long x) { return work(x) + 1; }

static void fiber(int self, int next)
{
    for (int i = 0; i < STEPS; i++) {
        sum = sum * 5 + through(i + self);
        if (next >= 0)
            swapcontext(&contexts[self], &contexts[next]);
    }
}

int main(void)
{
    for (int i = 0; i < 3; i++) {
        getcontext(&contexts[i]);
        contexts[i].uc_stack.ss_sp = stacks[i];
        contexts[i].uc_stack.ss_size = sizeof stacks[i];
        contexts[i].uc_link = &from;
    }
    makecontext(&contexts[0], (void (*)(void))fiber, 2, 0, 1);
    makecontext(&contexts[1], (void (*)(void))fiber, 2, 1, 0);
    makecontext(&contexts[2], (void (*)(void))fiber, 2, 2, -1);
    swapcontext(&from, &contexts[0]);
    swapcontext(&from, &contexts[2]);
    printf("calls %ld sum %lx\n", calls, sum);
    return 0;
}
