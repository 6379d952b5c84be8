/* Names without a one-to-one relation to functions; compiled together with names_more.c.
 *
 *     names
 *
 * `first_name` and `second_name` are one function; there are two functions `helper`, one in each
 * file; `sometimes` is split by the compiler, and its rest is called directly; `always` exists only
 * as inlined copies. Prints `ready`, waits for SIGUSR1, works, prints `calls NAME N` and `ok SUM`;
 * ends on SIGTERM. */
#include "gate.h"

#define NOINLINE __attribute__((noinline, noclone, noipa))
#define ROUNDS 4000

unsigned long first_calls, sometimes_calls, rest_calls;
uint64_t other(uint64_t x);
uint64_t call_sometimes(uint64_t x);

NOINLINE uint64_t first_name(uint64_t x)
{
    return x * 3 ^ x >> 5;
}
uint64_t second_name(uint64_t x) __attribute__((alias("first_name")));
uint64_t weak_name(uint64_t x) __attribute__((weak, alias("first_name")));

NOINLINE static uint64_t helper(uint64_t x)
{
    return x + 11;
}

static uint64_t log_of[64];

uint64_t sometimes(uint64_t x)
{
    if (__builtin_expect((x & 7) != 0, 1))
        return x;
    rest_calls++;
    for (int i = 0; i < 64; i++) {
        log_of[i] = log_of[i] * 7 + x;
        if (log_of[i] % 5 == 0)
            x += first_name(log_of[i]), first_calls++;
        if (log_of[i] % 7 == 0)
            x ^= log_of[(i + 3) % 64];
    }
    return x * 3;
}

__attribute__((always_inline)) static inline uint64_t always(uint64_t x)
{
    return (x ^ x << 3) + 77;
}

NOINLINE static uint64_t one(uint64_t x) { return always(x) + always(x + 1); }
NOINLINE static uint64_t two(uint64_t x) { return always(x) * 3; }

int main(void)
{
    unsigned long helpers = 0;
    await_nothing_yet();
    say("ready");
    await_test(SIGUSR1);
    uint64_t sum = 0;
    for (uint64_t x = 0; x < ROUNDS; x++) {
        sum = sum * 31 + first_name(x) + second_name(x + 1) + weak_name(x + 2), first_calls += 3;
        sum = sum * 31 + helper(x), helpers++;
        if (x % 2 == 0)
            sum += other(x);
        sum += sometimes(x) + sometimes(x + 5);
        sum += call_sometimes(x), sometimes_calls++;
        sum += one(x) + two(x);
    }
    printf("calls first_name %lu\ncalls sometimes %lu\n", first_calls, sometimes_calls);
    printf("calls sometimes.part.0 %lu\n", rest_calls);
    printf("calls one %d\nhelpers %lu\nok %llu\n", ROUNDS, helpers, (unsigned long long)sum);
    fflush(stdout);
    await_test(SIGTERM);
    return 0;
}
