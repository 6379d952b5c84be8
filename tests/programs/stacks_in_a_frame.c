/* Coroutines whose stacks are an array in main's frame, a page each: below the stack pointer of one
 * is another one. Each calls `work` forever and checks the data on its stack. Prints `ready`; ends
 * with `ok ROUNDS` on SIGTERM. */
#include "work.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

enum { STACKS = 8, STACK = 4096, KEPT = 1024, CALLS = 200 };

static ucontext_t contexts[STACKS], first;
static long rounds;

static void body(int id)
{
    volatile unsigned char kept[KEPT];
    memset((void *)kept, id + 1, sizeof kept);
    while (!ends) {
        for (long x = 0; x < CALLS; x++)
            if (work(x + id) != (x + id) * 3 + 1)
                abort();
        for (int i = 0; i < KEPT; i++)
            if (kept[i] != id + 1)
                abort();
        rounds++;
        swapcontext(&contexts[id], &contexts[(id + 1) % STACKS]);
    }
    setcontext(&first);
}

int main(void)
{
    char stacks[STACKS][STACK] __attribute__((aligned(64)));
    char alternate[65536];
    /* These stacks have no room for the handler. */
    stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate};
    struct sigaction action = {.sa_handler = end, .sa_flags = SA_ONSTACK};
    sigaltstack(&stack, NULL);
    sigaction(SIGTERM, &action, NULL);
    for (int id = 0; id < STACKS; id++) {
        getcontext(&contexts[id]);
        contexts[id].uc_stack.ss_sp = stacks[id];
        contexts[id].uc_stack.ss_size = STACK;
        makecontext(&contexts[id], (void (*)(void))body, 1, id);
    }
    puts("ready");
    fflush(stdout);
    swapcontext(&first, &contexts[0]);
    printf("ok %ld\n", rounds);
    return 0;
}
