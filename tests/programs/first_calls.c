/* With `first_calls THREADS` this many threads call `nap`, which sleeps for 5 ms, all at the same
 * time, until SIGTERM. Prints `ready`, ends with `ok`. */
#include "work.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static pthread_barrier_t together;

__attribute__((noinline, noclone, noipa)) long nap(long x)
{
    struct timespec t = {0, 5000000};
    nanosleep(&t, NULL);
    return work(x);
}

static void *body(void *unused)
{
    for (long x = 0; !ends; x++) {
        nap(x);
        pthread_barrier_wait(&together);
    }
    return unused;
}

int main(int argc, char **argv)
{
    int threads = argc > 1 ? atoi(argv[1]) : 4;
    pthread_barrier_init(&together, NULL, (unsigned)threads);
    struct sigaction ending = {.sa_handler = end};
    sigaction(SIGTERM, &ending, NULL);
    pthread_t others[64];
    for (int i = 1; i < threads && i < 64; i++)
        pthread_create(&others[i], NULL, body, NULL);
    puts("ready");
    fflush(stdout);
    while (!ends)
        nap(0), pthread_barrier_wait(&together);
    puts("ok");
    fflush(stdout);
    _Exit(0);
}
