/* For programs that time themselves: a clock, and numbers without a pattern. */
#ifndef TIMED_H
#define TIMED_H

#include <stdint.h>
#include <time.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))

/* The time of a clock, ns. */
static int64_t now(clockid_t clock)
{
    struct timespec at;
    clock_gettime(clock, &at);
    return at.tv_sec * 1000000000L + at.tv_nsec;
}

/* The number after `x`, `steps` steps on. */
static inline uint64_t work(uint64_t x, int steps)
{
    for (int i = 0; i < steps; i++)
        x = x * 6364136223846793005u + 1442695040888963407u;
    return x;
}

#endif
