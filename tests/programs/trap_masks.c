/* Calls `tiny_four`, which has no room for a jump, beside threads that block SIGTRAP.
 *
 *     trap_masks makes|ends|blocks
 *
 * With `makes` two threads create others, one after another, each of which calls it ten times. The
 * creating and the created thread have all signals blocked for a moment. With `ends` the created
 * threads have used most of their stacks: an ending thread has all signals blocked except the C
 * library's SIGSETXID (33) until its stack has been released. With `blocks` the main thread blocks
 * SIGTRAP permanently. Ends on SIGTERM with `ok calls N`. */
#define _GNU_SOURCE
#include "trap_functions.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { MAKERS = 2, CALLS = 10, DEEP = 7 << 20 };

static atomic_int stop;
static atomic_long calls;

static void on_term(int signal)
{
    (void)signal;
    atomic_store(&stop, 1);
}

static void *caller(void *deep)
{
    if (deep) {
        char most[DEEP];
        for (long i = 0; i < DEEP; i += 4096)
            *(volatile char *)(most + i) = 1;
    }
    for (uint64_t i = 0; i < CALLS; i++)
        if (tiny_four(i) == i)
            atomic_fetch_add(&calls, 1);
    return NULL;
}

static int makes, ends;

static void *maker(void *unused)
{
    (void)unused;
    struct timespec moment = {0, 50000};
    while (!atomic_load(&stop)) {
        pthread_t made;
        if (makes && pthread_create(&made, NULL, caller, ends ? &ends : NULL) == 0)
            pthread_join(made, NULL);
        nanosleep(&moment, NULL);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "";
    ends = strcmp(how, "ends") == 0;
    makes = ends || strcmp(how, "makes") == 0;
    struct sigaction ending = {.sa_handler = on_term, .sa_flags = SA_RESTART};
    sigaction(SIGTERM, &ending, NULL);
    pthread_t makers[MAKERS];
    for (int i = 0; i < MAKERS; i++)
        pthread_create(&makers[i], NULL, maker, NULL);
    if (!makes) {
        sigset_t trap;
        sigemptyset(&trap);
        sigaddset(&trap, SIGTRAP);
        pthread_sigmask(SIG_BLOCK, &trap, NULL);
    }
    puts("ready");
    fflush(stdout);
    for (int i = 0; i < MAKERS; i++)
        pthread_join(makers[i], NULL);
    printf("ok calls %ld\n", atomic_load(&calls));
    return 0;
}
