/* Two threads call `tick` below some frames without a pause. Another one sends each of them signals
 * that the program ignores, and that are reported to a tracer. Prints "ready", and at SIGTERM the
 * longest time in which one of the two made no progress: "ok longest N ms". */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))
enum { WORKERS = 2, DEPTH = 40 };

static atomic_int is_over, ids[WORKERS];
static double longest[WORKERS];

NOINLINE long tick(long x) { return x * 3 + 1; }
NOINLINE static long deep(int depth, long x) { return depth ? deep(depth - 1, x) + 1 : tick(x); }

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

static void *work(void *of)
{
    long own = (long)of;
    ids[own] = (int)syscall(SYS_gettid);
    double last = now();
    while (!is_over) {
        deep(DEPTH, own);
        double at = now();
        if (at - last > longest[own])
            longest[own] = at - last;
        last = at;
    }
    return NULL;
}

static void *tell(void *none)
{
    struct timespec pause = {0, 50000};
    while (!is_over) {
        for (int i = 0; i < WORKERS; i++)
            syscall(SYS_tgkill, getpid(), ids[i], SIGURG);
        nanosleep(&pause, NULL);
    }
    return none;
}

int main(void)
{
    sigset_t set;
    int signal;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    pthread_t threads[WORKERS + 1];
    for (long i = 0; i < WORKERS; i++)
        pthread_create(&threads[i], NULL, work, (void *)i);
    while (!ids[0] || !ids[1])
        usleep(100);
    pthread_create(&threads[WORKERS], NULL, tell, NULL);
    puts("ready");
    fflush(stdout);
    sigwait(&set, &signal);
    is_over = 1;
    for (int i = 0; i <= WORKERS; i++)
        pthread_join(threads[i], NULL);
    printf("ok longest %.0f ms\n", longest[0] > longest[1] ? longest[0] : longest[1]);
    return 0;
}
