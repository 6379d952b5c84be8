/* Starts as many threads as its argument says, which all run in `turn` without a pause. Prints
 * `ready` when all have started. */
#include "gate.h"

#define NOINLINE __attribute__((noinline, noclone, noipa))

static volatile long sink;
static pthread_mutex_t begun = PTHREAD_MUTEX_INITIALIZER;

NOINLINE void turn(long n)
{
    for (long i = 0; i < n; i++)
        sink += i;
}

static void *run(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&begun);
    pthread_mutex_unlock(&begun);
    for (;;)
        turn(10000);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_mutex_lock(&begun);
    pthread_attr_setstacksize(&small, 64 << 10);
    for (int i = argc > 1 ? atoi(argv[1]) : 1; i > 0; i--) {
        pthread_t id;
        if (pthread_create(&id, &small, run, NULL) != 0)
            gate_fail("pthread_create");
    }
    say("ready");
    pthread_mutex_unlock(&begun);
    pause();
    return 0;
}
