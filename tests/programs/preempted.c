/* User threads that a timer's signal preempts: its handler goes on on another stack, and what it has interrupted
 * stays behind until its turn comes. Each calls `outer`, which calls `work`, and rests in between, so that seldom one
 * of them is left in the few bytes that probes overwrite. `preempted MICROSECONDS` gives each so long. Prints `ready`; ends with `ok SWITCHES` on SIGTERM. */
#define _GNU_SOURCE
#include "work.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <ucontext.h>

enum { CONTEXTS = 16, STACK = 262144, REST = 50 };

static ucontext_t contexts[CONTEXTS];
static int running;
static long switches;

__attribute__((noinline, noclone, noipa)) long outer(long x)
{
    return work(x) - 2 * x;
}

static void preempt(int signal)
{
    (void)signal;
    int left = running;
    running = (running + 1) % CONTEXTS;
    switches++;
    swapcontext(&contexts[left], &contexts[running]);
}

/* A new one begins with the signal blocked, as it is in the handler that switches to it. */
static void block(int how)
{
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGALRM);
    sigprocmask(how, &mask, NULL);
}

static void body(void)
{
    block(SIG_UNBLOCK);
    long x = 0;
    while (!ends) {
        long next = outer(x);
        if (next != x + 1)
            abort();
        x = next;
        for (volatile int i = 0; i < REST; i++)
            ;
    }
    printf("ok %ld\n", switches);
    fflush(stdout);
    _Exit(0);
}

int main(int argc, char **argv)
{
    block(SIG_BLOCK);
    for (int i = 0; i < CONTEXTS; i++) {
        getcontext(&contexts[i]);
        contexts[i].uc_stack.ss_sp = malloc(STACK);
        contexts[i].uc_stack.ss_size = STACK;
        makecontext(&contexts[i], body, 0);
    }
    struct sigaction ending = {.sa_handler = end, .sa_flags = SA_RESTART};
    sigaction(SIGTERM, &ending, NULL);
    struct sigaction tick = {.sa_handler = preempt, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &tick, NULL);
    int microseconds = argc > 1 ? atoi(argv[1]) : 1000;
    struct itimerval slice = {{0, microseconds}, {0, microseconds}};
    puts("ready");
    fflush(stdout);
    setitimer(ITIMER_REAL, &slice, NULL);
    setcontext(&contexts[0]);
    return 2;
}
