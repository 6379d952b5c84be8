/* Many threads, of which all but the last two sleep most of the time, in `doze`. Those two work all
 * the time, in `hot`, and are the last ones to be found. Prints `ready`, ends with `ok` on SIGTERM.
 *
 *     crowd THREADS
 */
#include "work.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))

static volatile long sink;

NOINLINE void hot(void)
{
    for (long i = 0; i < 100000; i++)
        sink += i;
}

NOINLINE void doze(long ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&t, NULL);
    sink++;
}

static void *dozes(void *number)
{
    while (!ends)
        doze(500 + (long)number % 500);
    return number;
}

static void *works(void *number)
{
    while (!ends)
        hot();
    return number;
}

int main(int argc, char **argv)
{
    long count = argc > 1 ? atol(argv[1]) : 100;
    struct sigaction ending = {.sa_handler = end};
    sigaction(SIGTERM, &ending, NULL);
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    pthread_t *threads = calloc(count, sizeof *threads);
    if (!threads)
        return 2;
    for (long i = 0; i < count; i++)
        if (pthread_create(&threads[i], &small, i < count - 2 ? dozes : works, (void *)i))
            return 3;
    puts("ready");
    fflush(stdout);
    for (long i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    puts("ok");
    return 0;
}
