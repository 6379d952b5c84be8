/* Threads that share one processor call `work`, which only computes, for STEPS steps.
 *
 *     delayed CALLS STEPS
 *
 * Prints the ns for which each thread called it, summed over the threads. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { THREADS = 4 };

static long calls;
static int steps;

__attribute__((noipa)) uint64_t work(uint64_t x)
{
    for (int i = 0; i < steps; i++)
        x = x * 6364136223846793005u + 1;
    return x;
}

static long now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000 + time.tv_nsec;
}

static void *thread(void *elapsed)
{
    static __thread volatile uint64_t sink;
    long begin = now();
    for (long i = 0; i < calls; i++)
        sink = work(sink);
    *(long *)elapsed = now() - begin;
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    calls = atol(argv[1]);
    steps = atoi(argv[2]);
    cpu_set_t all, one;
    if (sched_getaffinity(0, sizeof all, &all) != 0)
        return 1;
    int first = 0;
    while (!CPU_ISSET(first, &all))
        first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0)
        return 1;
    pthread_t threads[THREADS];
    long elapsed[THREADS], sum = 0;
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, thread, &elapsed[i]) != 0)
            return 1;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++)
        sum += elapsed[i];
    printf("%ld\n", sum);
    return 0;
}
