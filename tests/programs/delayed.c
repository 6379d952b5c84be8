/* Threads that share one processor call `work`, which only computes.
 *
 *     delayed CALLS
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 4 };

static long calls;

__attribute__((noipa)) uint64_t work(uint64_t x)
{
    for (int i = 0; i < 40000; i++)
        x = x * 6364136223846793005u + 1;
    return x;
}

static void *thread(void *unused)
{
    static __thread volatile uint64_t sink;
    for (long i = 0; i < calls; i++)
        sink = work(sink);
    return unused;
}

int main(int argc, char **argv)
{
    calls = argc > 1 ? atol(argv[1]) : 0;
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
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, thread, NULL) != 0)
            return 1;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    puts("ok");
    return 0;
}
