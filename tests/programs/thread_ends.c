/* Threads that end in the middle of calls, all of them alive until the last one ends:
 * `thread_ends WHAT`.
 *
 * exit: by pthread_exit, whose cleanup handlers make further calls.
 * cancel: canceled at a cancellation point; asynchronous: canceled anywhere.
 * main_exit, main_cancel: the first thread ends in that way, and another one ends the program. */
#define _GNU_SOURCE
#include "ends.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdlib.h>
#include <unistd.h>

enum { THREADS = 5 };

static const char *what;
static sem_t ready, never;
static pthread_barrier_t all_there;
static pthread_t first;
static long cleaned;
static int turning;

static int is(const char *name) { return strcmp(what, name) == 0; }

PROBED long cleans(long x)
{
    enter(CLEANS);
    return leave(CLEANS, x * 3 + 1);
}

static void on_end(void *argument) { __atomic_fetch_add(&cleaned, cleans((long)argument), __ATOMIC_RELAXED); }

PROBED long leaves(long x)
{
    enter(LEAVES);
    if (x == 0)
        return leave(LEAVES, cleans(x));
    pthread_barrier_wait(&all_there);
    if (is("asynchronous")) {
        pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
        /* It can be canceled only from here on, and so always in this function. */
        __atomic_fetch_add(&turning, 1, __ATOMIC_RELEASE);
        for (volatile long i = 0;; i++)
            ;
    }
    sem_post(&ready);
    if (is("exit") || is("main_exit"))
        pthread_exit((void *)x);
    while (sem_wait(&never) == 0)
        ;
    return leave(LEAVES, x);
}

PROBED long inner(long x)
{
    enter(INNER);
    long got;
    pthread_cleanup_push(on_end, (void *)x);
    got = leaves(x);
    pthread_cleanup_pop(0);
    return leave(INNER, got + 1);
}

/* Recursive. */
PROBED long middle(long x, long depth)
{
    enter(MIDDLE);
    long got = depth ? middle(x, depth - 1) : inner(x);
    return leave(MIDDLE, got + 1);
}

PROBED long outer(long x)
{
    enter(OUTER);
    long got;
    pthread_cleanup_push(on_end, (void *)x);
    got = middle(x, 3);
    pthread_cleanup_pop(1);
    return leave(OUTER, got + 1);
}

static void *thread(void *argument)
{
    for (int i = 0; i < 20; i++)
        outer(0);
    return (void *)outer((long)argument);
}

/* Outlives the first thread. */
static void *last(void *argument)
{
    void *result;
    sem_wait(&ready);
    if (is("main_cancel"))
        pthread_cancel(first);
    pthread_join(first, &result);
    printf("cleaned %ld joined %ld\n", cleaned, (long)result);
    say_counts();
    return argument;
}

int main(int argc, char **argv)
{
    what = argc > 1 ? argv[1] : "";
    first = pthread_self();
    sem_init(&ready, 0, 0);
    sem_init(&never, 0, 0);
    int is_first = is("main_exit") || is("main_cancel");
    pthread_barrier_init(&all_there, NULL, is_first ? 1 : THREADS);
    pthread_t ids[THREADS];
    if (is_first) {
        pthread_create(&ids[0], NULL, last, NULL);
        return (int)(long)thread((void *)7L);
    }
    for (long i = 0; i < THREADS; i++)
        pthread_create(&ids[i], NULL, thread, (void *)(i + 1));
    if (is("asynchronous"))
        while (__atomic_load_n(&turning, __ATOMIC_ACQUIRE) < THREADS)
            sched_yield();
    else
        for (long i = 0; i < THREADS; i++)
            sem_wait(&ready);
    long sum = 0;
    for (long i = 0; i < THREADS; i++) {
        if (!is("exit"))
            pthread_cancel(ids[i]);
        void *result;
        pthread_join(ids[i], &result);
        sum = sum * 3 + (long)result;
    }
    printf("cleaned %ld sum %ld\n", cleaned, sum);
    say_counts();
    return 0;
}
