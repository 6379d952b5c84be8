/* Calls `tiny_four`, in which no jump has room, beside threads that block SIGTRAP.
 *
 *     trap_masks makes|blocks
 *
 * With `makes` two threads make others, one after another, each of which calls it ten times: whoever makes a thread, and whoever is made, has
 * all signals blocked for a moment. With `blocks` the main thread blocks SIGTRAP for good. Ends on SIGTERM with `ok calls N`. */
#define _GNU_SOURCE
#include "trap_functions.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { MAKERS = 2, CALLS = 10 };

static atomic_int stop;
static atomic_long calls;

static void on_term(int signal)
{
    (void)signal;
    atomic_store(&stop, 1);
}

static void *caller(void *unused)
{
    for (uint64_t i = 0; i < CALLS; i++)
        if (tiny_four(i) == i)
            atomic_fetch_add(&calls, 1);
    return unused;
}

static void *maker(void *makes)
{
    struct timespec moment = {0, 50000};
    while (!atomic_load(&stop)) {
        pthread_t made;
        if (makes && pthread_create(&made, NULL, caller, NULL) == 0)
            pthread_join(made, NULL);
        nanosleep(&moment, NULL);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    int makes = argc > 1 && strcmp(argv[1], "makes") == 0;
    struct sigaction ending = {.sa_handler = on_term, .sa_flags = SA_RESTART};
    sigaction(SIGTERM, &ending, NULL);
    pthread_t makers[MAKERS];
    for (int i = 0; i < MAKERS; i++)
        pthread_create(&makers[i], NULL, maker, makes ? makers : NULL);
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
