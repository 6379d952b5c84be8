/* Three functions that call themselves and each other at random, and record the times: SEED CALLS
 * FILE.
 *
 * Each call is a line of FILE, in the order in which the calls began:
 * `CALLER FUNCTION CALLED ENTERED LEFT RETURNED`. CALLER is the number of the calling call, or -1
 * or -2 for the two callers outside; FUNCTION is 0 to 2. The others are readings of the time-stamp
 * counter: in the caller right before the call, as the first and the last action of the function,
 * and in the caller right after the call.
 *
 * Each function contains one call site for each function, so the names on a stack determine its
 * path. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))

enum { MOST_CALLS = 200 * 1000, MOST_DEPTH = 14, SHORTEST = 128 };

static struct call {
    long caller;
    int function;
    uint64_t called, entered, left, returned;
} calls[MOST_CALLS];

static long made, most, current;
static uint64_t state;
static volatile uint64_t sink;

/* Reads the clock before any later instruction begins. */
static inline __attribute__((always_inline)) uint64_t clock_then_rest(void)
{
    uint32_t low, high;
    __asm__ volatile("rdtsc\n\tlfence" : "=a"(low), "=d"(high)::"memory");
    return (uint64_t)high << 32 | low;
}

/* Reads the clock after all earlier instructions have finished. */
static inline __attribute__((always_inline)) uint64_t rest_then_clock(void)
{
    uint32_t low, high;
    __asm__ volatile("lfence\n\trdtsc" : "=a"(low), "=d"(high)::"memory");
    return (uint64_t)high << 32 | low;
}

static uint64_t below(uint64_t bound)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % bound;
}

/* A time between SHORTEST and 256 times that, in rounds of the loop. All powers of two are equally
 * likely. */
static void compute(void)
{
    uint64_t rounds = (uint64_t)SHORTEST << below(8);
    rounds += below(rounds);
    for (uint64_t i = 0; i < rounds; i++)
        sink += i;
}

NOINLINE void alpha(int depth);
NOINLINE void beta(int depth);
NOINLINE void delta(int depth);

/* Calls one of the three, at random. */
static inline __attribute__((always_inline)) void call_one(int depth)
{
    struct call *call = &calls[made];
    uint64_t which = below(3);
    call->function = (int)which;
    call->caller = current;
    if (which == 0) {
        call->called = clock_then_rest();
        alpha(depth);
        call->returned = rest_then_clock();
    } else if (which == 1) {
        call->called = clock_then_rest();
        beta(depth);
        call->returned = rest_then_clock();
    } else {
        call->called = clock_then_rest();
        delta(depth);
        call->returned = rest_then_clock();
    }
}

static inline __attribute__((always_inline)) void body(int depth)
{
    uint64_t entered = rest_then_clock();
    long own = made++, outer = current;
    calls[own].entered = entered;
    current = own;
    compute();
    /* Of ten calls four make no call, four make one and two make two, so that they end. */
    uint64_t chance = below(10);
    for (int left = chance < 4 ? 0 : chance < 8 ? 1 : 2; left > 0 && depth < MOST_DEPTH && made < most; left--) {
        call_one(depth + 1);
        compute();
    }
    current = outer;
    calls[own].left = clock_then_rest();
}

NOINLINE void alpha(int depth) { body(depth); }
NOINLINE void beta(int depth) { body(depth); }
NOINLINE void delta(int depth) { body(depth); }

NOINLINE void morning(void)
{
    current = -1;
    call_one(0);
}

NOINLINE void evening(void)
{
    current = -2;
    call_one(0);
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    state = strtoull(argv[1], NULL, 10);
    most = atol(argv[2]);
    if (most < 1 || most > MOST_CALLS)
        return 2;
    while (made < most) {
        if (below(2) == 0)
            morning();
        else
            evening();
    }
    FILE *file = fopen(argv[3], "w");
    if (!file)
        return 2;
    for (struct call *call = calls; call < calls + made; call++)
        fprintf(file, "%ld %d %lu %lu %lu %lu\n", call->caller, call->function, call->called, call->entered,
            call->left, call->returned);
    return fclose(file) != 0;
}
