/* Coroutines of makecontext(3): `coroutines THREADS` runs them on that many threads. Each continues
 * on the next thread whenever it has suspended in the middle of its calls. Some jump out of their
 * calls after that. Some are abandoned, and others begin on their stacks. */
#define _GNU_SOURCE
#include "ends.h"

#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdlib.h>
#include <ucontext.h>

enum { COROUTINES = 7, ROUNDS = 40, LAST = 22, LIVES = 3, STACK = 65536, MOST_THREADS = 8 };

struct coroutine {
    ucontext_t context, *back;
    char *stack;
    long number, life, sum;
    int is_done, is_left;
    jmp_buf before;
    struct coroutine *next;
};

struct queue {
    pthread_mutex_t lock;
    sem_t filled;
    struct coroutine *first, **last;
};

static struct coroutine coroutines[COROUTINES];
static struct queue queues[MOST_THREADS];
static int threads, running = COROUTINES;

static void put(struct queue *queue, struct coroutine *coroutine)
{
    pthread_mutex_lock(&queue->lock);
    if (coroutine)
        coroutine->next = NULL;
    if (coroutine) {
        *queue->last = coroutine;
        queue->last = &coroutine->next;
    }
    pthread_mutex_unlock(&queue->lock);
    sem_post(&queue->filled);
}

/* NULL once all are finished. */
static struct coroutine *take(struct queue *queue)
{
    while (sem_wait(&queue->filled) != 0)
        ;
    pthread_mutex_lock(&queue->lock);
    struct coroutine *first = queue->first;
    if (first && !(queue->first = first->next))
        queue->last = &queue->first;
    pthread_mutex_unlock(&queue->lock);
    return first;
}

/* Suspends, and continues on the next thread. */
static void pause_here(struct coroutine *own) { swapcontext(&own->context, own->back); }

PROBED long cleans(long x)
{
    enter(CLEANS);
    return leave(CLEANS, x * 3 + 1);
}

PROBED long leaves(struct coroutine *own, long x)
{
    enter(LEAVES);
    long got = cleans(x);
    pause_here(own);
    if (x % 5 == 0)
        longjmp(own->before, 1);
    if (own->life < LIVES && x == LAST) {
        own->is_left = 1;
        pause_here(own);
    }
    return leave(LEAVES, got + cleans(x));
}

PROBED long inner(struct coroutine *own, long x)
{
    enter(INNER);
    long got = x % 3 ? leaves(own, x) : 5;
    return leave(INNER, got + 1);
}

/* Recursive, and suspended on the way in and out. */
PROBED long middle(struct coroutine *own, long x, long depth)
{
    enter(MIDDLE);
    if (depth == 1)
        pause_here(own);
    long got = depth ? middle(own, x, depth - 1) : inner(own, x);
    if (depth == 2)
        pause_here(own);
    return leave(MIDDLE, got + 1);
}

PROBED long outer(struct coroutine *own, long x)
{
    enter(OUTER);
    if (setjmp(own->before))
        return leave(OUTER, 9);
    return leave(OUTER, middle(own, x, x % 4) + 1);
}

static void live(int number)
{
    struct coroutine *own = &coroutines[number];
    for (long x = 1; x <= ROUNDS; x++)
        own->sum = own->sum * 3 + outer(own, x);
    own->is_done = 1;
    pause_here(own);
}

/* Reuses the stack for a new coroutine. */
static void begin(struct coroutine *coroutine)
{
    coroutine->life++;
    coroutine->is_left = 0;
    getcontext(&coroutine->context);
    coroutine->context.uc_stack.ss_sp = coroutine->stack;
    coroutine->context.uc_stack.ss_size = STACK;
    makecontext(&coroutine->context, (void (*)(void))live, 1, (int)coroutine->number);
}

/* Runs on the thread's own stack, around each part of a coroutine. */
PROBED long handler(struct coroutine *coroutine)
{
    ucontext_t here;
    enter(HANDLER);
    coroutine->back = &here;
    swapcontext(&here, &coroutine->context);
    return leave(HANDLER, cleans(1));
}

static void *thread(void *argument)
{
    long self = (long)argument;
    struct coroutine *coroutine;
    while ((coroutine = take(&queues[self]))) {
        handler(coroutine);
        if (coroutine->is_left)
            begin(coroutine);
        if (!coroutine->is_done)
            put(&queues[(self + 1) % threads], coroutine);
        else if (__atomic_sub_fetch(&running, 1, __ATOMIC_SEQ_CST) == 0)
            for (int i = 0; i < threads; i++)
                put(&queues[i], NULL);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    threads = argc > 1 ? atoi(argv[1]) : 1;
    for (int i = 0; i < threads; i++) {
        queues[i].last = &queues[i].first;
        pthread_mutex_init(&queues[i].lock, NULL);
        sem_init(&queues[i].filled, 0, 0);
    }
    for (int i = 0; i < COROUTINES; i++) {
        coroutines[i].number = i;
        coroutines[i].stack = malloc(STACK);
        begin(&coroutines[i]);
        put(&queues[i % threads], &coroutines[i]);
    }
    pthread_t ids[MOST_THREADS];
    for (long i = 0; i < threads; i++)
        pthread_create(&ids[i], NULL, thread, (void *)i);
    for (int i = 0; i < threads; i++)
        pthread_join(ids[i], NULL);
    long sum = 0;
    for (int i = 0; i < COROUTINES; i++)
        sum = sum * 5 + coroutines[i].sum;
    printf("sum %lx\n", sum);
    say_counts();
    return 0;
}
