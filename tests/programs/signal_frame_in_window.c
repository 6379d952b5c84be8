/* Three threads that stand in their functions like those of pc_in_window, and are interrupted there
 * by a signal whose handler waits. The address at which they continue is only in a signal frame,
 * one of them on an alternate stack.
 *
 * Each SIGUSR1 leads to the next line: `ready` all stand, `handling` all handlers wait, `returned`
 * all stand again, `calls NAME N` and `done` each has made CALLS further calls, `ok` the end. */
#include "in_window.h"
#include <semaphore.h>

#define CALLS 1000

static sem_t entered, left, finished, end;
static int held[2];

static void handle(int signal)
{
    (void)signal;
    char byte;
    sem_post(&entered);
    while (read(held[0], &byte, 1) != 1)
        ;
    sem_post(&left);
}

static void *run(void *argument)
{
    struct way *way = argument;
    if (way == &ways[1]) {
        stack_t stack = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};
        if (sigaltstack(&stack, NULL) < 0)
            gate_fail("sigaltstack");
    }
    call(way);
    for (int i = 0; i < CALLS; i++)
        call(way);
    sem_post(&finished);
    sem_wait(&end);
    return NULL;
}

static void all(sem_t *semaphore)
{
    for (int i = 0; i < WAYS; i++)
        while (sem_wait(semaphore) < 0)
            ;
}

int main(void)
{
    await_nothing_yet();
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_ONSTACK | SA_RESTART};
    if (sigaction(SIGUSR2, &action, NULL) < 0 || pipe(held) < 0)
        gate_fail("signal_frame_in_window");
    sem_init(&entered, 0, 0);
    sem_init(&left, 0, 0);
    sem_init(&finished, 0, 0);
    sem_init(&end, 0, 0);
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
        pthread_kill(threads[i], SIGUSR2);
    all(&entered);
    say("handling");
    await_test(SIGUSR1);
    if (write(held[1], "xxx", WAYS) != WAYS)
        gate_fail("write");
    all(&left);
    say("returned");
    await_test(SIGUSR1);
    for (int i = 0; i < WAYS; i++)
        gate_open(&ways[i].gate);
    all(&finished);
    say_calls();
    say("done");
    await_test(SIGUSR1);
    long wrong = 0;
    for (int i = 0; i < WAYS; i++)
        sem_post(&end);
    for (int i = 0; i < WAYS; i++) {
        pthread_join(threads[i], NULL);
        wrong += ways[i].wrong;
    }
    say(wrong ? "wrong" : "ok");
    return wrong != 0;
}
