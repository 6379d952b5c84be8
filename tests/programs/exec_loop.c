/* A program that constantly executes itself, and checks its results.
 *
 *     exec_loop UNTIL [EXECS]
 *
 * Calls `work` from two threads for a millisecond, then executes itself, until the clock has
 * reached UNTIL (seconds since 1970). Ends with one line, `ok execs N` or `wrong WHY`. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))

static atomic_int wrong;

NOINLINE uint64_t work(uint64_t x)
{
    return (x ^ x >> 7) * 3 + 1;
}

static double now(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void *compute(void *begin)
{
    double until = *(double *)begin + 0.001;
    uint64_t x = 1, y = 1;
    /* At least once, even if the thread first gets a processor after that. */
    do {
        for (int i = 0; i < 50; i++) {
            x = work(x);
            y = (y ^ y >> 7) * 3 + 1;
        }
        if (x != y)
            atomic_store(&wrong, 1);
    } while (now(CLOCK_MONOTONIC) < until);
    return NULL;
}

int main(int argc, char **argv)
{
    long execs = argc > 2 ? atol(argv[2]) : 0;
    if (execs == 0) {
        puts("ready");
        fflush(stdout);
    }
    if (argc < 2)
        return 2;
    double begin = now(CLOCK_MONOTONIC);
    pthread_t thread;
    pthread_create(&thread, NULL, compute, &begin);
    compute(&begin);
    if (atomic_load(&wrong)) {
        printf("wrong result after %ld execs\n", execs);
        return 1;
    }
    if (now(CLOCK_REALTIME) >= atof(argv[1])) {
        printf("ok execs %ld\n", execs);
        return 0;
    }
    /* The other thread may still exist: exec(2) ends it. */
    char next[32];
    snprintf(next, sizeof next, "%ld", execs + 1);
    execl("/proc/self/exe", argv[0], argv[1], next, (char *)NULL);
    printf("wrong: exec failed after %ld\n", execs);
    return 1;
}
