/* The time of a call with each choice of metrics.
 *
 * usage: metrics CALLS ROUNDS
 *
 * Prints, in ns of processor time per call, the minimum over the rounds of: `twin`, which is never
 * measured; two reads of the time-stamp counter around it; and `measured`, which is the same
 * function. Then the number of calls of `measured`, and the sums of its arguments and return
 * values. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <x86intrin.h>

#define APART __attribute__((noipa, aligned(64)))

enum { TWIN, RDTSC, MEASURED, WAYS };

static volatile int64_t sink;

APART int64_t measured(int64_t x)
{
    sink = sink * 3 + x;
    return 100 - x;
}

APART int64_t twin(int64_t x)
{
    sink = sink * 3 + x;
    return 100 - x;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* Values like sizes: 16 to 255. Returns are positive and negative. */
static inline __attribute__((always_inline)) int64_t value(uint64_t i)
{
    return (int64_t)(16 + (i * 0x9E3779B97F4A7C15u >> 33) % 240);
}

int main(int argc, char **argv)
{
    long calls = argc > 2 ? atol(argv[1]) : 0, rounds = argc > 2 ? atol(argv[2]) : 0;
    double least[WAYS];
    /* Sums over calls that are not measured, and over those that are. */
    int64_t arguments[2] = {0}, returns[2] = {0};
    if (calls < 1 || rounds < 1)
        return 2;
    for (long round = 0; round < rounds; round++) {
        for (int way = 0; way < WAYS; way++) {
            double from = now();
            for (long i = 0; i < calls; i++) {
                int64_t x = value((uint64_t)i);
                if (way == MEASURED) {
                    returns[1] += measured(x);
                    arguments[1] += x;
                } else if (way == TWIN) {
                    returns[0] += twin(x);
                    arguments[0] += x;
                } else {
                    uint64_t before = __rdtsc();
                    returns[0] += twin(x);
                    arguments[0] += x;
                    sink += (int64_t)(__rdtsc() - before);
                }
            }
            double took = (now() - from) / (double)calls;
            if (round == 0 || took < least[way])
                least[way] = took;
        }
    }
    printf("metrics %.3f %.3f %.3f %ld %ld %ld\n", least[TWIN], least[RDTSC], least[MEASURED], calls * rounds,
        (long)arguments[1], (long)returns[1]);
    return arguments[0] != 2 * arguments[1] || returns[0] != 2 * returns[1];
}
