/* Calls indirect functions: libm's, libc's, and one of its own.
 *
 *     ifunc CALLS [SECONDS]
 *
 * Prints `ok chosen N sin N` once it has made the calls. With SECONDS it continues until SIGTERM or
 * the end of that time, and prints its total number of calls. */
#define _GNU_SOURCE
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))

NOINLINE static long first(long x) { return x * 3 + 1; }
NOINLINE static long second(long x) { return (x ^ 5) * 7; }

static long (*pick(void))(long)
{
    /* A value that only the running program can determine. */
    return (uintptr_t)&pick % 2 == 0 ? second : first;
}
long chosen(long x) __attribute__((ifunc("pick")));

static atomic_int stop;
static void on_term(int signal)
{
    (void)signal;
    atomic_store(&stop, 1);
}

int main(int argc, char **argv)
{
    long calls = argc > 1 ? atol(argv[1]) : 100;
    double seconds = argc > 2 ? atof(argv[2]) : 0;
    long made = 0, sines = 0;
    double sum = 0;
    struct timespec start, now;
    signal(SIGTERM, on_term);
    clock_gettime(CLOCK_MONOTONIC, &start);
    if (seconds > 0) {
        puts("ready");
        fflush(stdout);
    }
    do {
        for (long i = 0; i < calls; i++) {
            long r = chosen(i);
            made++;
            if (r != (i ^ 5) * 7 && r != i * 3 + 1)
                return 1;
            if (i % 2 == 0) {
                volatile double angle = (double)i;
                sum += sin(angle);
                sines++;
            }
        }
        if (seconds > 0)
            usleep(1000);
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (!atomic_load(&stop) && (double)(now.tv_sec - start.tv_sec) < seconds);
    printf("ok chosen %ld sin %ld %g\n", made, sines, sum);
    return 0;
}
