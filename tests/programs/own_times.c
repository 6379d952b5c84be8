/* Calls work() on three paths. The argument selects where the calls run:
 *   contexts  on fibers of makecontext(3). Two threads steal them from each other inside work().
 *   threads   on a thread for each of the six tasks
 *
 * The output has the format of stolen_stacks.c. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

#define APART __attribute__((noinline, noclone, noipa))

enum { COROUTINES = 6, ROUNDS = 12, STACK = 65536, PATHS = 3 };

struct coroutine {
    ucontext_t own, back;

    long id, done, last, busy, wake, inside, outside, calls;
};

#include "stealing.h"

static int is_threads;

APART void suspend(struct coroutine *task)
{
    if (is_threads)
        usleep(task->wake > now() ? (task->wake - now()) / 1000 : 1);
    else
        swapcontext(&task->own, &task->back);
    __asm__ volatile("");
}

APART long work(struct coroutine *task, long ms)
{
    long start = now();
    task->calls++;
    task->wake = start + ms * 1000000;
    suspend(task);
    task->inside += now() - start;
    return ms;
}

/* Calls work() from its own call site, below a given number of recursive calls. */
#define PATH(number, ms) \
    APART long path_##number(struct coroutine *task, int deep) \
    { \
        if (deep > 0) \
            return path_##number(task, deep - 1) + 1; \
        long start = now(); \
        long result = work(task, ms); \
        task->outside += now() - start; \
        return result + number; \
    }

PATH(0, 1)
PATH(1, 5)
PATH(2, 20)

APART static void rounds(struct coroutine *task)
{
    static long (*const paths[PATHS])(struct coroutine *, int) = {path_0, path_1, path_2};
    long sum = 0;
    for (int round = 0; round < ROUNDS; round++)
        sum += paths[task->id % PATHS](task, task->id);
    task->done = sum + 1;
}

static void body(int id)
{
    rounds(&coroutines[id]);
    for (;;)
        suspend(&coroutines[id]);
}

static void *run_alone(void *task)
{
    rounds(task);
    return NULL;
}

static void resume(struct coroutine *task)
{
    swapcontext(&task->back, &task->own);
}

int main(int argc, char **argv)
{
    pthread_t threads[COROUTINES];
    is_threads = argc > 1 && strcmp(argv[1], "threads") == 0;
    for (int i = 0; i < COROUTINES; i++) {
        coroutines[i].id = i;
        coroutines[i].last = -1;
        if (is_threads) {
            pthread_create(&threads[i], NULL, run_alone, &coroutines[i]);
            continue;
        }
        getcontext(&coroutines[i].own);
        coroutines[i].own.uc_stack.ss_sp = malloc(STACK);
        coroutines[i].own.uc_stack.ss_size = STACK;
        makecontext(&coroutines[i].own, (void (*)(void))body, 1, i);
    }
    for (int i = 0; i < COROUTINES && is_threads; i++)
        pthread_join(threads[i], NULL);
    if (!is_threads)
        run_all();
    long calls = 0;
    for (int path = 0; path < PATHS; path++) {
        long inside = 0, outside = 0;
        for (int i = path; i < COROUTINES; i += PATHS) {
            inside += coroutines[i].inside;
            outside += coroutines[i].outside;
            calls += coroutines[i].calls;
        }
        printf("inside path_%d %ld\noutside path_%d %ld\n", path, inside, path, outside);
    }
    printf("calls work %ld\nleft work 0\n", calls);
    return 0;
}
