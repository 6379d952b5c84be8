/* `endless THREADS`: each thread is in a loop of `turns` until SIGTERM, without a call. Prints
 * `ready`, and `ok` at the end. */
#include "gate.h"

static volatile sig_atomic_t ends;
static volatile long sink[64 * 16];

__attribute__((noinline, noclone, noipa)) static void turns(long *at)
{
    long i = 0;
    while (!ends) {
        if (i++ & 1)
            at[0]++;
        else
            at[1] += i;
    }
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
