/* Calls `work` on three paths, and counts the calls of each itself.
 *
 * Begins at SIGUSR1, and ends on SIGTERM with a line for each path: the caller of `work`, and the
 * number. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))

static volatile long sink;
static unsigned long by_first, by_second, by_inner;
static atomic_int is_over;

NOINLINE void work(long x)
{
    sink += x;
}

NOINLINE static void first(long x)
{
    by_first++;
    work(x);
    sink++;
}

NOINLINE static void second(long x)
{
    by_second++;
    work(x + 1);
    sink--;
}

NOINLINE static void inner(long x)
{
    by_inner++;
    work(x + 2);
    sink++;
}

NOINLINE static void outer(long x)
{
    inner(x);
    sink--;
}

static void *call(void *unused)
{
    struct timespec pause = {0, 200000};
    for (long x = 0; !atomic_load(&is_over); x++) {
        first(x);
        if (x % 2 == 0)
            second(x);
        if (x % 5 == 0)
            outer(x);
        if (x % 16 == 0)
            nanosleep(&pause, NULL);
    }
    return unused;
}

int main(void)
{
    int got;
    sigset_t signals;
    pthread_t thread;
    sigemptyset(&signals);
    sigaddset(&signals, SIGUSR1);
    sigaddset(&signals, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    puts("ready");
    fflush(stdout);
    sigwait(&signals, &got);
    if (pthread_create(&thread, NULL, call, NULL))
        return 3;
    puts("begun");
    fflush(stdout);
    while (sigwait(&signals, &got) == 0 && got != SIGTERM)
        ;
    atomic_store(&is_over, 1);
    pthread_join(thread, NULL);
    printf("first %lu\nsecond %lu\ninner %lu\nok\n", by_first, by_second, by_inner);
    return 0;
}
