/* A thread ends on SIGUSR1; another one calls `step` all the time. Prints the id of the first as
 * `ready TID`, and `ended` once the thread has been joined. Ends with `ok` on SIGTERM. */
#include "gate.h"

static volatile long sink;
static volatile sig_atomic_t ends;
static int tid;

__attribute__((noinline, noclone, noipa)) static void step(void) { sink++; }

static void *steps(void *unused)
{
    while (!ends)
        step();
    return unused;
}

static void *ended(void *unused)
{
    tid = gettid();
    printf("ready %d\n", tid);
    fflush(stdout);
    await_test(SIGUSR1);
    return unused;
}

int main(void)
{
    pthread_t busy, short_lived;
    await_nothing_yet();
    if (pthread_create(&busy, NULL, steps, NULL) || pthread_create(&short_lived, NULL, ended, NULL) ||
        pthread_join(short_lived, NULL))
        return 3;
    say("ended");
    await_test(SIGTERM);
    ends = 1;
    pthread_join(busy, NULL);
    say("ok");
    return 0;
}
