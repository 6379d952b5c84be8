/* User threads that a timer's signal preempts: its handler continues on another stack, and the
 * interrupted context waits for its turn. The including file defines the number of CONTEXTS. */
#include "work.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <ucontext.h>

enum { STACK = 262144, REST = 50 };

static ucontext_t contexts[CONTEXTS];
static int running;
static long switches;

__attribute__((noinline, noclone, noipa)) long outer(long x)
{
    return work(x) - 2 * x;
}

/* Calls `outer`, checks the result, and rests, so that a thread is rarely preempted in the few
 * bytes that probes overwrite. */
static long call_and_rest(long x)
{
    long next = outer(x);
    if (next != x + 1)
        abort();
    for (volatile int i = 0; i < REST; i++)
        ;
    return next;
}

static void preempt(int signal)
{
    (void)signal;
    int left = running;
    running = (running + 1) % CONTEXTS;
    switches++;
    swapcontext(&contexts[left], &contexts[running]);
}

/* A new thread starts with the signal blocked, as it is in the handler that switches to it. */
static void block(int how)
{
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGALRM);
    sigprocmask(how, &mask, NULL);
}

/* Ends the program, called by one of the threads. */
static void say_ok(void)
{
    printf("ok %ld\n", switches);
    fflush(stdout);
    _Exit(0);
}

/* Starts threads that run `body` with their number, with this time slice. */
static int run_preempted(void (*body)(int), int microseconds)
{
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
    struct itimerval slice = {{0, microseconds}, {0, microseconds}};
    puts("ready");
    fflush(stdout);
    setitimer(ITIMER_REAL, &slice, NULL);
    setcontext(&contexts[0]);
    return 2;
}
