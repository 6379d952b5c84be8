/* A scheduler of coroutines that two threads steal from each other. The including file first
 * declares `struct coroutine` with the numbers `done`, `last`, `busy` and `wake`, and defines
 * COROUTINES. */
#ifndef STEALING_H
#define STEALING_H

#include <pthread.h>
#include <time.h>
#include <unistd.h>

static struct coroutine coroutines[COROUTINES];
static long left = COROUTINES;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Runs a coroutine until it suspends itself. */
static void resume(struct coroutine *coroutine);

static long now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000 + time.tv_nsec;
}

/* A coroutine that the other thread ran last, and that has slept long enough. */
static struct coroutine *take(long thread)
{
    struct coroutine *found = NULL;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < COROUTINES && found == NULL; i++) {
        struct coroutine *one = &coroutines[i];
        if (!one->busy && !one->done && one->last != thread && one->wake <= now())
            found = one;
    }
    if (found != NULL) {
        found->busy = 1;
        found->last = thread;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

static int are_left(void)
{
    pthread_mutex_lock(&lock);
    int are = left != 0;
    pthread_mutex_unlock(&lock);
    return are;
}

static void *steal(void *argument)
{
    while (are_left()) {
        struct coroutine *coroutine = take((long)argument);
        if (coroutine == NULL) {
            usleep(100);
            continue;
        }
        resume(coroutine);
        pthread_mutex_lock(&lock);
        coroutine->busy = 0;
        left -= coroutine->done != 0;
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

/* Runs all coroutines to completion on two threads. */
static void run_all(void)
{
    pthread_t threads[2];
    for (long i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, steal, (void *)i);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
}

#endif
