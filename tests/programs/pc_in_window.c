/* Three threads that stand at a chosen instruction of their function while ipath attaches and
 * detaches: `in_entry` inside its first five bytes, `in_exit` inside the five bytes before its end,
 * `at_entry` on its first instruction. Each stands in the middle of a string instruction.
 *
 * Prints `ready` when all stand. SIGUSR1 lets them continue, make CALLS further calls and stand
 * again: `calls NAME N` counts the calls that ended since `ready`, then it prints `again`. A second
 * SIGUSR1 lets them end: `ok`. */
#include "in_window.h"

#define CALLS 1000

static pthread_barrier_t barrier;

static void *run(void *argument)
{
    struct way *way = argument;
    call(way);
    for (int i = 0; i < CALLS; i++)
        call(way);
    pthread_barrier_wait(&barrier); /* main closes the gates */
    pthread_barrier_wait(&barrier);
    call(way);
    return NULL;
}

int main(void)
{
    await_nothing_yet();
    pthread_barrier_init(&barrier, NULL, WAYS + 1);
    pthread_t threads[WAYS];
    for (int i = 0; i < WAYS; i++) {
        ways[i].gate = gate_make();
        pthread_create(&threads[i], NULL, run, &ways[i]);
    }
    for (int i = 0; i < WAYS; i++)
        gate_await(&ways[i].gate);
    say("ready");
    await_test(SIGUSR1);
    for (int i = 0; i < WAYS; i++)
        gate_open(&ways[i].gate);
    pthread_barrier_wait(&barrier);
    say_calls();
    for (int i = 0; i < WAYS; i++)
        gate_close(&ways[i].gate);
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < WAYS; i++)
        gate_await(&ways[i].gate);
    say("again");
    await_test(SIGUSR1);
    long wrong = 0;
    for (int i = 0; i < WAYS; i++) {
        gate_open(&ways[i].gate);
        pthread_join(threads[i], NULL);
        wrong += ways[i].wrong;
    }
    say(wrong ? "wrong" : "ok");
    return wrong != 0;
}
