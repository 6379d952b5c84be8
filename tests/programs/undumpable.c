/* A program that lets nobody of its own user look into it from SIGUSR1 on (prctl(2), PR_SET_DUMPABLE), and lets them
 * again from SIGUSR2 on.
 *
 *     undumpable
 *
 * Calls `work` in a loop. Ends on SIGTERM with `ok calls N`. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <time.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))

static volatile sig_atomic_t stop;

NOINLINE uint64_t work(uint64_t x)
{
    return (x ^ x >> 13) * 9 + 1;
}

static void on_signal(int signal)
{
    if (signal == SIGTERM)
        stop = 1;
    else
        prctl(PR_SET_DUMPABLE, signal == SIGUSR2, 0, 0, 0);
}

int main(void)
{
    signal(SIGTERM, on_signal);
    signal(SIGUSR1, on_signal);
    signal(SIGUSR2, on_signal);
    puts("ready");
    fflush(stdout);
    uint64_t x = 1;
    unsigned long calls = 0;
    for (; !stop; calls++) {
        x = work(x);
        struct timespec pause = {0, 100000};
        nanosleep(&pause, NULL);
    }
    printf("ok calls %lu\n", calls);
    return x == 0;
}
