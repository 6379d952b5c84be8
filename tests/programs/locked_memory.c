/* A program that locks all future mappings (mlockall(2)), and has threads that start later.
 *
 *     locked_memory [mdwe]
 *
 * With `mdwe` its mappings also cannot become executable later (prctl(2), PR_SET_MDWE, Linux 6.3).
 * Calls `work` in a loop. Ends on SIGTERM with `ok calls N`. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))

static atomic_int stop;
static atomic_ulong calls;

NOINLINE uint64_t work(uint64_t x)
{
    return (x ^ x >> 11) * 7 + 1;
}

static void on_term(int signal)
{
    (void)signal;
    atomic_store(&stop, 1);
}

static void *compute(void *unused)
{
    uint64_t x = 1;
    for (int i = 0; i < 100; i++) {
        x = work(x);
        atomic_fetch_add(&calls, 1);
    }
    (void)unused;
    return (void *)(uintptr_t)(x == 0);
}

int main(int count, char **given)
{
    const int set_mdwe = 65, refuse_gain = 1;
    (void)given;
    signal(SIGTERM, on_term);
    if (count > 1 && prctl(set_mdwe, refuse_gain, 0, 0, 0) != 0) {
        puts("wrong: PR_SET_MDWE");
        return 1;
    }
    if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0) {
        puts("wrong: mlockall");
        return 1;
    }
    puts("ready");
    fflush(stdout);
    while (!atomic_load(&stop)) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, compute, NULL) != 0) {
            puts("wrong: no thread");
            return 1;
        }
        compute(NULL);
        pthread_join(thread, NULL);
        struct timespec pause = {0, 1000000};
        nanosleep(&pause, NULL);
    }
    printf("ok calls %lu\n", atomic_load(&calls));
    return 0;
}
