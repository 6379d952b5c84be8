/* Fibers of makecontext(3), by argument:
 *   threads   one fiber, resumed by one new thread after the other. Each thread has the control
 *             block of an ended one, and its first visible event is a return.
 *   realtime  two threads of different real-time priority on one processor, each with its own
 *             fiber; one may preempt the other at any point
 *   mappings  no fiber: a stack that spans two mappings */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>

#define APART __attribute__((noinline, noclone, noipa))

enum { STACK = 65536, ROUNDS = 4, TURNS = 5, LOW = 100000, HIGH = 3000, DEPTH = 200, DESCENTS = 100 };
static const size_t LARGE = 8 << 20;

struct fiber {
    ucontext_t own, back;
    char stack[STACK];
    long leaves, waits;
    int priority, is_done;
};

static struct fiber fibers[2];
static long outers, descents;

APART void leaf(struct fiber *fiber)
{
    fiber->leaves++;
}

APART void wait_for(struct fiber *fiber)
{
    fiber->waits++;
    swapcontext(&fiber->own, &fiber->back);
    __asm__ volatile("");
}

APART void outer(struct fiber *fiber)
{
    outers++;
    for (int turn = 0; turn < TURNS; turn++) {
        wait_for(fiber);
        leaf(fiber);
    }
    __asm__ volatile("");
}

APART long descend(long depth)
{
    volatile char room[1000];
    descents++;
    room[depth] = 1;
    return (depth ? descend(depth - 1) : 0) + room[depth];
}

static void begin(struct fiber *fiber, void (*function)(void))
{
    getcontext(&fiber->own);
    fiber->own.uc_stack.ss_sp = fiber->stack;
    fiber->own.uc_stack.ss_size = sizeof fiber->stack;
    fiber->own.uc_link = NULL;
    makecontext(&fiber->own, function, 0);
}

static void go_on(struct fiber *fiber)
{
    swapcontext(&fiber->back, &fiber->own);
}

static void wander(void)
{
    for (int round = 0; round < ROUNDS; round++)
        outer(&fibers[0]);
    fibers[0].is_done = 1;
    swapcontext(&fibers[0].own, &fibers[0].back);
}

static void *carry(void *unused)
{
    (void)unused;
    go_on(&fibers[0]);
    return NULL;
}

static void wait_again_and_again(struct fiber *fiber)
{
    for (;;) {
        leaf(fiber);
        wait_for(fiber);
    }
}

static void low(void)
{
    wait_again_and_again(&fibers[0]);
}

static void high(void)
{
    wait_again_and_again(&fibers[1]);
}

static void *take_turns(void *argument)
{
    struct fiber *fiber = argument;
    struct sched_param parameters = {.sched_priority = fiber->priority};
    cpu_set_t first;
    CPU_ZERO(&first);
    CPU_SET(0, &first);
    pthread_setaffinity_np(pthread_self(), sizeof first, &first);
    if (pthread_setschedparam(pthread_self(), SCHED_FIFO, &parameters) != 0)
        abort();
    begin(fiber, fiber == fibers ? low : high);
    /* The thread of higher priority sleeps in between, and wakes up wherever the other one is. */
    for (int i = 0; i < (fiber == fibers ? LOW : HIGH); i++) {
        struct timespec nap = {0, 30000};
        go_on(fiber);
        leaf(fiber);
        if (fiber != fibers)
            nanosleep(&nap, NULL);
    }
    return NULL;
}

static void *fall(void *unused)
{
    (void)unused;
    for (int i = 0; i < DESCENTS; i++)
        descend(DEPTH);
    return NULL;
}

static void run(void *(*function)(void *), void *argument, const pthread_attr_t *attributes)
{
    pthread_t thread;
    if (pthread_create(&thread, attributes, function, argument) != 0)
        abort();
    pthread_join(thread, NULL);
}

int main(int count, char **words)
{
    const char *what = count > 1 ? words[1] : "";
    if (strcmp(what, "threads") == 0) {
        begin(&fibers[0], wander);
        go_on(&fibers[0]);
        while (!fibers[0].is_done)
            run(carry, NULL, NULL);
    } else if (strcmp(what, "realtime") == 0) {
        pthread_t threads[2];
        for (int i = 0; i < 2; i++) {
            fibers[i].priority = 10 * (i + 1);
            pthread_create(&threads[i], NULL, take_turns, &fibers[i]);
        }
        for (int i = 0; i < 2; i++)
            pthread_join(threads[i], NULL);
    } else {
        char *memory = mmap(NULL, LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        madvise(memory, LARGE - STACK, MADV_NOHUGEPAGE);
        pthread_attr_t attributes;
        pthread_attr_init(&attributes);
        pthread_attr_setstack(&attributes, memory, LARGE);
        run(fall, NULL, &attributes);
    }
    printf("calls leaf %ld\n", fibers[0].leaves + fibers[1].leaves);
    printf("calls wait_for %ld\n", fibers[0].waits + fibers[1].waits);
    printf("calls outer %ld\n", outers);
    printf("calls descend %ld\n", descents);
}
