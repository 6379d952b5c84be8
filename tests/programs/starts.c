/* Functions of many shapes, to be compiled with options that put instructions at their starts:
 * endbr64, no-ops for patching, calls of __fentry__.
 *
 *     starts
 *
 * Prints `ready`, waits for SIGUSR1, works, and prints `calls NAME N` for each function and
 * `ok SUM`; ends on SIGTERM. */
#include "gate.h"

#define NOINLINE __attribute__((noinline, noclone, noipa))
#define ROUNDS 3000

static unsigned long empty_calls, constant_calls, plain_calls, looping_calls, chooses_calls,
    tail_calls, through_calls, nested_calls, many_calls;

NOINLINE void empty(void) {}
NOINLINE int constant(void) { return 42; }
NOINLINE uint64_t plain(uint64_t x) { return (x ^ x >> 7) * 5; }

NOINLINE uint64_t looping(const char *text)
{
    uint64_t n = 0;
    while (*text)
        n = n * 33 + (unsigned char)*text++;
    return n;
}

NOINLINE uint64_t chooses(uint64_t x)
{
    switch (x % 9) {
    case 0: return x + 1;
    case 1: return x * 3;
    case 2: empty(); empty_calls++; return x - 1;
    case 3: return x ^ 0x55;
    case 4: return ~x;
    case 5: return x << 2;
    case 6: return x / 3;
    case 7: return plain_calls++, plain(x);
    }
    return 0;
}

NOINLINE uint64_t tail(uint64_t x)
{
    plain_calls++;
    return plain(x + 1);
}

NOINLINE uint64_t through(uint64_t (*const function)(uint64_t), uint64_t x)
{
    return function(x) + 1;
}

NOINLINE uint64_t nested(uint64_t x)
{
    nested_calls++;
    /* Not a sum, which the compiler would turn into a loop. */
    return x < 2 ? x : nested(x / 2) ^ nested(x / 3) >> 1;
}

/* All registers for arguments, and the stack. */
NOINLINE double many(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f,
                     uint64_t g, double h, double i, long double j)
{
    return (double)(a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g) + h * i + (double)j;
}

int main(void)
{
    static uint64_t (*const table[])(uint64_t) = {plain, chooses, tail, nested};
    static unsigned long *const counts[] = {&plain_calls, &chooses_calls, &tail_calls, NULL};
    await_nothing_yet();
    say("ready");
    await_test(SIGUSR1);
    uint64_t sum = 0;
    for (uint64_t x = 0; x < ROUNDS; x++) {
        empty(), empty_calls++;
        sum += (uint64_t)constant(), constant_calls++;
        sum = sum * 31 + looping(x % 3 == 0 ? "" : x % 3 == 1 ? "a" : "function"), looping_calls++;
        for (int i = 0; i < 4; i++) {
            if (counts[i])
                ++*counts[i];
            sum = sum * 31 + through(table[i], x), through_calls++;
        }
        sum += (uint64_t)many(x, 1, 2, 3, 4, 5, 6, (double)x, 1.5, 2.25L), many_calls++;
    }
    printf("calls empty %lu\ncalls constant %lu\ncalls plain %lu\ncalls looping %lu\n", empty_calls,
           constant_calls, plain_calls, looping_calls);
    printf("calls chooses %lu\ncalls tail %lu\ncalls through %lu\ncalls nested %lu\n", chooses_calls,
           tail_calls, through_calls, nested_calls);
    printf("calls many %lu\nok %llu\n", many_calls, (unsigned long long)sum);
    fflush(stdout);
    await_test(SIGTERM);
    return 0;
}
