/* Forks a child for each request, one after another. `compute`, called by `serve`, takes about 50
 * ms of CPU time in the child. Ends on SIGTERM with `ok children N`. */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "work.h"

#define NOINLINE __attribute__((noinline, noclone, noipa))

static volatile long sum;

static long used(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

NOINLINE void compute(void)
{
    for (long i = 0; i < 1000000; i++)
        sum += i;
}

NOINLINE void serve(void)
{
    long begin = used();
    while (used() - begin < 50)
        compute();
    sum++;
}

int main(void)
{
    struct sigaction ending = {.sa_handler = end};
    sigaction(SIGTERM, &ending, NULL);
    puts("ready");
    fflush(stdout);
    long children = 0;
    while (!ends) {
        pid_t child = fork();
        if (child == 0) {
            serve();
            _exit(0);
        }
        children++;
        while (waitpid(child, NULL, 0) < 0 && !ends)
            ;
    }
    while (wait(NULL) > 0)
        ;
    printf("ok children %ld\n", children);
    return 0;
}
