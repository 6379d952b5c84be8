/* User threads that a timer's signal preempts, each time with another part of its stack in use: the handler goes on on
 * another stack, and what it has interrupted stays behind until its turn comes. So signal frames come to lie over what
 * is left of earlier ones, at all distances.
 *
 *     preempted_at_other_depths BYTES
 *
 * Each thread calls `outer`, which calls `work`, and rests in between, so that seldom one of them is left in the few
 * bytes that probes overwrite. While it does it has up to BYTES more of its stack in use; after SIGUSR1 none more, and
 * after the next one as before. Prints `ready`, and `shallow` once no thread has more in use; ends with `ok SWITCHES` on
 * SIGTERM. */
#define _GNU_SOURCE
#include "work.h"

#include <alloca.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <ucontext.h>

enum { CONTEXTS = 8, STACK = 262144, SLICE_US = 500, CALLS = 1000, REST = 50 };

static ucontext_t contexts[CONTEXTS];
static int running;
static long switches;
static unsigned most;
static volatile sig_atomic_t is_shallow;
/* Threads that have seen it. */
static int seen;

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

static void change(int signal)
{
    (void)signal;
    is_shallow = !is_shallow;
}

/* A new one begins with the signal blocked, as it is in the handler that switches to it. */
static void block(int how)
{
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGALRM);
    sigprocmask(how, &mask, NULL);
}

/* Calls with so many bytes of the stack more in use, which are left as they are. */
__attribute__((noinline, noclone, noipa)) static long deeper(long x, size_t bytes)
{
    volatile char *room = alloca(bytes);
    room[0] = 1;
    for (int i = 0; i < CALLS; i++) {
        long next = outer(x);
        if (next != x + 1)
            abort();
        x = next;
        for (volatile int j = 0; j < REST; j++)
            ;
    }
    return x;
}

static void body(int number)
{
    block(SIG_UNBLOCK);
    unsigned random = (unsigned)number;
    int was_shallow = 0;
    for (long x = 0; !ends;) {
        if (is_shallow != was_shallow) {
            was_shallow = !was_shallow;
            block(SIG_BLOCK);
            seen += was_shallow ? 1 : -1;
            if (seen == CONTEXTS) {
                puts("shallow");
                fflush(stdout);
            }
            block(SIG_UNBLOCK);
        }
        random = random * 1103515245 + 12345;
        x = deeper(x, was_shallow ? 1 : 1 + (random >> 16) % (most + 1));
    }
    printf("ok %ld\n", switches);
    fflush(stdout);
    _Exit(0);
}

int main(int argc, char **argv)
{
    most = argc > 1 ? (unsigned)atoi(argv[1]) : 0;
    block(SIG_BLOCK);
    for (int i = 0; i < CONTEXTS; i++) {
        getcontext(&contexts[i]);
        contexts[i].uc_stack.ss_sp = malloc(STACK);
        contexts[i].uc_stack.ss_size = STACK;
        makecontext(&contexts[i], (void (*)(void))body, 1, i);
    }
    struct sigaction ending = {.sa_handler = end, .sa_flags = SA_RESTART};
    sigaction(SIGTERM, &ending, NULL);
    struct sigaction tick = {.sa_handler = preempt, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &tick, NULL);
    struct sigaction changing = {.sa_handler = change, .sa_flags = SA_RESTART};
    sigaddset(&changing.sa_mask, SIGALRM);
    sigaction(SIGUSR1, &changing, NULL);
    struct itimerval slice = {{0, SLICE_US}, {0, SLICE_US}};
    puts("ready");
    fflush(stdout);
    setitimer(ITIMER_REAL, &slice, NULL);
    setcontext(&contexts[0]);
    return 2;
}
