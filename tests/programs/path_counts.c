/* Functions whose paths are known.
 *
 *     path_counts many CALLS DISTINCT    calls of `many`, on DISTINCT paths
 *     path_counts huge CALLS DISTINCT    the same of `huge`, which has more paths
 *     path_counts weave CALLS HOW        calls of `weave` in several coroutines. HOW is `alone` (one
 *                                        after the other), `woven` (each yields in the loop), or
 *                                        `moved` (woven, and each time on another thread)
 *     path_counts deep DEPTH ROUNDS      activations of `deep` in each other, with loops before and
 *                                        after the call
 *     path_counts chained CALLS ROUNDS   calls of `chained`, with loops of up to ROUNDS iterations
 *
 * `many` and `huge` print the number of calls of each path, in ascending order. Prints `ok`. */
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))

static volatile long sink[35];

#define FORK(bit) if (mask & 1L << bit) sink[bit]++;

/* 8192 paths. */
NOINLINE void many(long mask)
{
    FORK(0) FORK(1) FORK(2) FORK(3) FORK(4) FORK(5) FORK(6)
    FORK(7) FORK(8) FORK(9) FORK(10) FORK(11) FORK(12)
}

/* 2^35 paths: their numbers do not fit 32 bits. */
NOINLINE void huge(long mask)
{
    FORK(0) FORK(1) FORK(2) FORK(3) FORK(4) FORK(5) FORK(6) FORK(7) FORK(8) FORK(9) FORK(10)
    FORK(11) FORK(12) FORK(13) FORK(14) FORK(15) FORK(16) FORK(17) FORK(18) FORK(19) FORK(20)
    FORK(21) FORK(22) FORK(23) FORK(24) FORK(25) FORK(26) FORK(27) FORK(28) FORK(29) FORK(30)
    FORK(31) FORK(32) FORK(33) FORK(34)
}

/* More than 4096 paths, if those before and in its loops are multiplied. */
NOINLINE void chained(long mask, long rounds)
{
    FORK(0) FORK(1) FORK(2) FORK(3) FORK(4) FORK(5) FORK(6) FORK(7)
    for (long i = 0; i < rounds; i++) {
        FORK(8)
        for (long k = i; k > mask % 3; k--)
            FORK(9)
        mask += 257;
    }
    while (mask & 3 << 10) {
        FORK(10)
        mask -= 1 << 9;
    }
    FORK(11) FORK(12)
}

static int by_value(const void *a, const void *b)
{
    long x = *(const long *)a, y = *(const long *)b;
    return (x > y) - (x < y);
}

static int call_many(void (*which)(long), long calls, long distinct)
{
    static long own[8192];
    for (long i = 0; i < calls; i++) {
        long number = i * i % distinct;
        own[number]++;
        which(which == many ? number * 2749 % 8192 : number * 27487790694413 % (1L << 35));
    }
    qsort(own, 8192, sizeof own[0], by_value);
    for (long i = 0; i < 8192; i++)
        if (own[i])
            printf("%ld ", own[i]);
    puts("ok");
    return 0;
}

enum { COROUTINES = 6, STACK = 1 << 16 };

static ucontext_t scheduler, all[COROUTINES];
static int yields, done[COROUTINES];
static long calls;
static volatile int current;

NOINLINE void yield(void)
{
    if (yields) {
        int own = current;
        swapcontext(&all[own], &scheduler);
    }
}

NOINLINE long weave(long n, long mask)
{
    long sum = mask;
    for (long i = 0; i < n; i++) {
        if (mask >> i & 1) {
            sink[0]++;
            yield();
        } else if (i & 1)
            sink[1] += sum;
        if (sum & 1L << i)
            yield();
        sum ^= i * mask;
    }
    return sum;
}

static void run(int own)
{
    for (long i = 0; i < calls; i++)
        sink[2] += weave(i % 9, i * (own + 3));
    done[own] = 1;
    swapcontext(&all[own], &scheduler);
}

static sem_t asked, answered;

static void resume(void)
{
    swapcontext(&scheduler, &all[current]);
}

static void *work_for_main(void *unused)
{
    for (;;) {
        sem_wait(&asked);
        if (current < 0)
            return unused;
        resume();
        sem_post(&answered);
    }
}

static int call_weave(const char *how)
{
    pthread_t thread;
    int moves = !strcmp(how, "moved");
    volatile int left = COROUTINES;
    yields = strcmp(how, "alone") != 0;
    if (sem_init(&asked, 0, 0) || sem_init(&answered, 0, 0) || pthread_create(&thread, NULL, work_for_main, NULL))
        return 2;
    for (int i = 0; i < COROUTINES; i++) {
        getcontext(&all[i]);
        all[i].uc_stack.ss_sp = malloc(STACK);
        all[i].uc_stack.ss_size = STACK;
        all[i].uc_link = NULL;
        makecontext(&all[i], (void (*)(void))run, 1, i);
    }
    for (volatile long turn = 0; left; turn++) {
        current = turn % COROUTINES;
        if (done[current])
            continue;
        if (moves && turn / 3 % 2) {
            sem_post(&asked);
            sem_wait(&answered);
        } else
            resume();
        left -= done[current];
    }
    current = -1;
    sem_post(&asked);
    pthread_join(thread, NULL);
    puts("ok");
    return 0;
}

NOINLINE long deep(long depth, long rounds)
{
    long sum = depth;
    for (long i = 0; i < rounds + depth % 3; i++) {
        if (sum & 1)
            sum = sum * 3 + i;
        else
            sum /= 2;
    }
    if (depth)
        sum += deep(depth - 1, rounds);
    for (long i = 0; i < rounds + sum % 2; i++)
        if (sum >> i & 1)
            sink[i & 31]++;
    return sum & 0xffff;
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    calls = atol(argv[2]);
    if (!strcmp(argv[1], "deep")) {
        printf("%ld\n", deep(calls, atol(argv[3])));
        return 0;
    }
    if (!strcmp(argv[1], "chained")) {
        for (long i = 0; i < calls; i++)
            chained(i * 2749 % 8192, i % (atol(argv[3]) + 1));
        puts("ok");
        return 0;
    }
    if (!strcmp(argv[1], "many") || !strcmp(argv[1], "huge"))
        return call_many(argv[1][0] == 'm' ? many : huge, calls, atol(argv[3]));
    return call_weave(argv[3]);
}
