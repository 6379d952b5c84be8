/* Spends its time where it says: `suggested cpu` in `hot` and, a third as much, in `warm`, both called by `mixed`;
 * `suggested lock` with two threads that contend for a lock in `update_shared` while its holder sleeps, and one that
 * sleeps in `rest`, a little; `suggested idle` nowhere. Prints `ready`, ends on SIGTERM. */
#define _GNU_SOURCE
#include "work.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile long sink;

NOINLINE void hot(long n)
{
    for (long i = 0; i < 3 * n; i++)
        sink += i;
}

NOINLINE void warm(long n)
{
    for (long i = 0; i < n; i++)
        sink += i;
}

NOINLINE void mixed(void)
{
    hot(40000);
    warm(40000);
}

static void nap(long ns)
{
    struct timespec t = {0, ns};
    nanosleep(&t, NULL);
}

NOINLINE void update_shared(void)
{
    pthread_mutex_lock(&lock);
    nap(3000000);
    sink++;
    pthread_mutex_unlock(&lock);
}

NOINLINE void rest(void)
{
    nap(1000000);
    sink++;
}

static void *contend(void *unused)
{
    while (!ends)
        update_shared();
    return unused;
}

static void *sometimes(void *unused)
{
    while (!ends) {
        rest();
        warm(2000000);
    }
    return unused;
}

int main(int argc, char **argv)
{
    const char *kind = argc > 1 ? argv[1] : "cpu";
    struct sigaction ending = {.sa_handler = end};
    sigaction(SIGTERM, &ending, NULL);
    /* Made before it is ready: who looks at the process then finds it as it stays. */
    int count = strcmp(kind, "lock") == 0 ? 3 : 0;
    pthread_t threads[3];
    for (int i = 0; i < count; i++)
        pthread_create(&threads[i], NULL, i < 2 ? contend : sometimes, NULL);
    puts("ready");
    fflush(stdout);
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    while (!ends)
        if (strcmp(kind, "cpu") == 0)
            mixed();
        else
            pause();
    puts("ok");
    return 0;
}
