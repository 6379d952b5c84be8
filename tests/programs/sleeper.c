/* Threads that are nearly always inside a system call, and check its result.
 *
 *     sleeper SECONDS
 *
 * Each calls `tick` before every system call and keeps values in vector and general registers
 * across it. Ends on SIGTERM or after SECONDS with one line: `ok calls N` or `wrong WHY`. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))

static atomic_long ticks;
static atomic_int stop;
static int pipes[2], idle[2];
static char wrong[200];

NOINLINE long tick(long x)
{
    atomic_fetch_add(&ticks, 1);
    return x * 3 + 1;
}

static void fail(const char *what, long result, int error)
{
    snprintf(wrong, sizeof wrong, "%s returned %ld: %s", what, result, strerror(error));
    atomic_store(&stop, 1);
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}

static void *naps(void *unused)
{
    (void)unused;
    const struct timespec nap = {0, 15000000};
    while (!atomic_load(&stop)) {
        double before = (double)tick(atomic_load(&ticks));
        int64_t start = now_ns();
        errno = 0;
        long r = nanosleep(&nap, NULL);
        if (r != 0 || now_ns() - start < nap.tv_nsec)
            fail("nanosleep", r, errno);
        if (before < 0)
            fail("a register", 0, 0);
    }
    return NULL;
}

static void *reads(void *unused)
{
    (void)unused;
    for (unsigned char expected = 0; !atomic_load(&stop); expected++) {
        unsigned char got = 0;
        tick(expected);
        long r = read(pipes[0], &got, 1);
        if (r != 1 || got != expected)
            fail("read", r, errno);
    }
    return NULL;
}

static void *writes(void *unused)
{
    (void)unused;
    for (unsigned char next = 0; !atomic_load(&stop); next++) {
        tick(next);
        long r = poll(NULL, 0, 10);
        if (r != 0)
            fail("poll", r, errno);
        if (write(pipes[1], &next, 1) != 1)
            fail("write", -1, errno);
    }
    return NULL;
}

/* One thread is always in a call that can be restarted completely. If all slept for a time, a
 * thread that makes calls for ipath could lose its own call when ipath is killed. */
static void *waits(void *unused)
{
    (void)unused;
    char got = 0;
    tick(0);
    long r = read(idle[0], &got, 1);
    if (r != 1)
        fail("read of nothing", r, errno);
    return NULL;
}

static void on_term(int signal)
{
    (void)signal;
    atomic_store(&stop, 1);
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? atof(argv[1]) : 10;
    if (pipe(pipes) != 0 || pipe(idle) != 0)
        return 2;
    signal(SIGTERM, on_term);
    pthread_t threads[4];
    void *(*const work[4])(void *) = {naps, reads, writes, waits};
    /* If the main thread has not run since it was stopped, the kernel delivers the signal to
     * another thread, whose call it ends. */
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &ends, NULL);
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, work[i], NULL);
    pthread_sigmask(SIG_UNBLOCK, &ends, NULL);
    while (atomic_load(&ticks) < 4)
        usleep(1000);
    puts("ready");
    fflush(stdout);
    int64_t end = now_ns() + (int64_t)(seconds * 1e9);
    while (!atomic_load(&stop) && now_ns() < end)
        usleep(5000);
    atomic_store(&stop, 1);
    unsigned char last = 0;
    pthread_join(threads[0], NULL);
    pthread_join(threads[2], NULL);
    (void)!write(idle[1], &last, 1);
    pthread_join(threads[3], NULL);
    char found[sizeof wrong];
    memcpy(found, wrong, sizeof found);
    /* Ends the reader. It may expect another byte than this one. */
    (void)!write(pipes[1], &last, 1);
    pthread_join(threads[1], NULL);
    if (found[0])
        printf("wrong %s\n", found);
    else
        printf("ok calls %ld\n", atomic_load(&ticks));
    return found[0] != 0;
}
