/* `inlined_endless THREADS`: each thread is in a copy of `turning` until SIGTERM, without a call,
 * and enters copies of `step` in it. Prints `ready`, and `ok` at the end. */
#include "gate.h"

static volatile sig_atomic_t ends;
static volatile long sink[64 * 16];

static inline __attribute__((always_inline)) void step(volatile long *at, long i)
{
    at[0] += i;
    if (i & 1)
        at[1]++;
}

static inline __attribute__((always_inline)) void turning(volatile long *at)
{
    long i = 0;
    at[2]++;
    while (!ends)
        step(at, i++);
}

__attribute__((noinline)) static void turns(volatile long *at)
{
    turning(at);
    at[3]++;
}

static void *thread(void *at)
{
    turns(at);
    return NULL;
}

int main(int argc, char **argv)
{
    long threads = argc > 1 ? atol(argv[1]) : 1;
    pthread_t all[64];
    await_nothing_yet();
    for (long i = 0; i < threads; i++)
        if (pthread_create(&all[i], NULL, thread, (void *)&sink[16 * i]))
            return 2;
    say("ready");
    await_test(SIGTERM);
    ends = 1;
    for (long i = 0; i < threads; i++)
        pthread_join(all[i], NULL);
    say("ok");
    return 0;
}
