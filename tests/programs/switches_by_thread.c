/* Threads, one after the other, that call `work` once. Every other one sleeps before the call, the
 * others within it: the first kind has many context switches before its call and none in it.
 *
 *     switches_by_thread THREADS
 *
 * Prints `switches N`: the context switches in the calls by getrusage(2), read just before and
 * after each call. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

enum { BEFORE = 20, WITHIN = 3 };

static long switches;

__attribute__((noipa)) void work(int sleeps)
{
    for (int i = 0; i < sleeps; i++)
        usleep(200);
}

static long now(void)
{
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nvcsw + usage.ru_nivcsw;
}

static void *thread(void *number)
{
    int is_before = (long)number % 2 == 0;
    for (int i = 0; i < BEFORE && is_before; i++)
        usleep(100);
    long before = now();
    work(is_before ? 0 : WITHIN);
    switches += now() - before;
    return NULL;
}

int main(int argc, char **argv)
{
    long threads = argc > 1 ? atol(argv[1]) : 0;
    for (long i = 0; i < threads; i++) {
        pthread_t one;
        if (pthread_create(&one, NULL, thread, (void *)i) != 0 || pthread_join(one, NULL) != 0)
            return 1;
    }
    printf("switches %ld\n", switches);
    return 0;
}
