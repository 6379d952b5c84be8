/* Functions that are so small and so close to each other that there is no room for a jump.
 *
 *     trap CALLS [SECONDS]
 *
 * Three threads call them CALLS times each, or with SECONDS as often as they can until SIGTERM or
 * the end of that time. Prints `ok calls N`, the number of calls of each function. */
#define _GNU_SOURCE
#include "trap_functions.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static atomic_int stop, begun;
static long most;

static void on_term(int signal)
{
    (void)signal;
    atomic_store(&stop, 1);
}

static void *thread(void *unused)
{
    (void)unused;
    atomic_fetch_add(&begun, 1);
    long calls = 0;
    while (!atomic_load_explicit(&stop, memory_order_relaxed) && (most == 0 || calls < most)) {
        tiny_one();
        tiny_two();
        if (tiny_four((uint64_t)calls * 7) != (uint64_t)calls * 7)
            return (void *)-1L;
        calls++;
    }
    return (void *)calls;
}

int main(int argc, char **argv)
{
    double seconds = argc > 2 ? atof(argv[2]) : 0;
    most = seconds > 0 ? 0 : argc > 1 ? atol(argv[1]) : 1000;
    signal(SIGTERM, on_term);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, thread, NULL);
    if (seconds > 0) {
        struct timespec moment = {0, 100000};
        /* A new thread has all signals blocked. */
        while (atomic_load(&begun) < 3)
            nanosleep(&moment, NULL);
        puts("ready");
        fflush(stdout);
        struct timespec pause = {0, 5000000};
        for (double waited = 0; waited < seconds && !atomic_load(&stop); waited += 0.005)
            nanosleep(&pause, NULL);
        atomic_store(&stop, 1);
    }
    long calls = 0;
    for (int i = 0; i < 3; i++) {
        void *result;
        pthread_join(threads[i], &result);
        if ((long)result < 0)
            return 1;
        calls += (long)result;
    }
    printf("ok calls %ld\n", calls);
    return 0;
}
