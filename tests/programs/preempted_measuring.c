/* Calls `mid`, which calls `leaf` CALLS times, until SIGTERM. Prints `ready`, and finally `own N`:
 * the mean CPU time of a call of `mid` by the thread's own clock, in ns. */
#define _GNU_SOURCE
#include "work.h"

#include <stdio.h>
#include <time.h>

enum { CALLS = 2000 };

static volatile long sink;

__attribute__((noinline, noclone, noipa)) void leaf(long x)
{
    for (int i = 0; i < 20; i++)
        sink += work(x);
}

__attribute__((noinline, noclone, noipa)) void mid(void)
{
    for (int i = 0; i < CALLS; i++)
        leaf(i);
}

static long cpu_time(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}

int main(void)
{
    struct sigaction ending = {.sa_handler = end};
    sigaction(SIGTERM, &ending, NULL);
    puts("ready");
    fflush(stdout);
    long own = 0, calls = 0;
    for (; !ends; calls++) {
        long before = cpu_time();
        mid();
        own += cpu_time() - before;
    }
    printf("own %ld\n", own / calls);
    return 0;
}
