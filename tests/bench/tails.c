/* The time of calls that leave by a tail call.
 *
 * usage: tails CALLS ROUNDS
 *
 * Prints, in ns of processor time per call, the minimum over the rounds of: an empty function,
 * `callee`; one that returns; one that leaves by a tail call of `callee`; and two reads of the
 * time-stamp counter around the first. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <x86intrin.h>

#define APART __attribute__((noipa, aligned(64)))

static volatile uint64_t sink;

APART void callee(uint64_t x)
{
    sink = sink * 3 + x;
}

APART void returns(uint64_t x)
{
    sink = sink * 3 + x;
}

APART void tails(uint64_t x)
{
    callee(x + 1);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

int main(int argc, char **argv)
{
    long calls = argc > 2 ? atol(argv[1]) : 0, rounds = argc > 2 ? atol(argv[2]) : 0;
    double least[4];
    if (calls < 1 || rounds < 1)
        return 2;
    for (long round = 0; round < rounds; round++) {
        for (int way = 0; way < 4; way++) {
            double from = now();
            for (long i = 0; i < calls; i++) {
                if (way == 1) {
                    returns((uint64_t)i);
                } else if (way == 2) {
                    tails((uint64_t)i);
                } else if (way == 0) {
                    callee((uint64_t)i);
                } else {
                    uint64_t before = __rdtsc();
                    callee((uint64_t)i);
                    sink += __rdtsc() - before;
                }
            }
            double took = (now() - from) / (double)calls;
            if (round == 0 || took < least[way])
                least[way] = took;
        }
    }
    printf("%.3f %.3f %.3f %.3f\n", least[0], least[1], least[2], least[3]);
    return 0;
}
