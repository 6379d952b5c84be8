/* The time of a call with cold caches: between two calls the program reads a buffer.
 *
 * usage: cold DEPTH KIB CALLS ROUNDS
 *   DEPTH    frames above tiny: those of the C runtime, main, step, and measured
 *   KIB      size of the buffer; with 0 the caches stay as they are
 *   CALLS    of each kind in each round
 * Each call is timed separately, between two readings of the time-stamp counter that wait (lfence).
 * The kinds are a call of `twin`, which is like `tiny` but never instrumented; one of twin between
 * two additional readings of the counter; and one of tiny. Prints these three in ns: the median of
 * the calls of a round, and of that the minimum over the rounds.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <x86intrin.h>

#define APART __attribute__((noipa, aligned(64)))
#define LINE 64
#define MOST_CALLS 100000
/* _start, __libc_start_main, its caller, main, measured. */
#define AROUND 5

enum kind { TWIN, RDTSC, TINY, KINDS };

static volatile uint64_t sink;
static unsigned char *buffer;
static size_t bytes;
static long calls, rounds;
static uint32_t ticks[MOST_CALLS];
static double least[KINDS];

APART void tiny(uint64_t x)
{
    sink = sink * 3 + x;
}

APART void twin(uint64_t x)
{
    sink = sink * 3 + x;
}

APART void timed_twin(uint64_t x)
{
    uint64_t before = __rdtsc();
    twin(x);
    sink += __rdtsc() - before;
}

APART static void read_buffer(void)
{
    uint64_t sum = 0;
    for (size_t at = 0; at < bytes; at += LINE)
        sum += *(volatile unsigned char *)(buffer + at);
    sink += sum;
}

static int by_size(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* The median time of the calls of one kind, in ticks. */
static double pass(enum kind kind)
{
    for (long i = 0; i < calls; i++) {
        read_buffer();
        _mm_lfence();
        uint64_t before = __rdtsc();
        _mm_lfence();
        if (kind == TWIN)
            twin((uint64_t)i);
        else if (kind == RDTSC)
            timed_twin((uint64_t)i);
        else
            tiny((uint64_t)i);
        _mm_lfence();
        ticks[i] = (uint32_t)(__rdtsc() - before);
    }
    qsort(ticks, (size_t)calls, sizeof *ticks, by_size);
    return ticks[calls / 2];
}

APART static void measured(void)
{
    for (long round = 0; round < rounds; round++)
        for (int kind = 0; kind < KINDS; kind++) {
            double found = pass((enum kind)kind);
            if (round == 0 || found < least[kind])
                least[kind] = found;
        }
}

APART static void step(int below)
{
    if (below == 0)
        measured();
    else
        step(below - 1);
    __asm__ volatile("" ::: "memory");
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return 2;
    int depth = atoi(argv[1]);
    bytes = (size_t)atol(argv[2]) << 10;
    calls = atol(argv[3]);
    rounds = atol(argv[4]);
    if (depth <= AROUND || calls < 1 || calls > MOST_CALLS || rounds < 1)
        return 2;
    buffer = malloc(bytes + LINE);
    if (buffer == NULL)
        return 1;
    memset(buffer, 1, bytes + LINE);
    double from = now();
    uint64_t before = __rdtsc();
    step(depth - AROUND - 1);
    double per_tick = (now() - from) / (double)(__rdtsc() - before);
    printf("%.1f %.1f %.1f\n", least[TWIN] * per_tick, least[RDTSC] * per_tick, least[TINY] * per_tick);
    return 0;
}
