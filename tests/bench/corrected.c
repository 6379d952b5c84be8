/* The times of functions without measurement, to compare with corrected times.
 *
 * usage: corrected CALLS ROUNDS dependent|independent
 *
 * Each kind of work is a function to be measured and a twin that never is. `nested_*` calls one of
 * them INNER times, and its twin calls the twin. A call's argument is the result of the previous
 * call, or does not depend on it. Prints `twin NAME NS` for each: the elapsed time of a call of the
 * twin in ns, minus that of a call of an empty function; the minimum over the rounds. Then it makes
 * as many calls of the functions. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define APART __attribute__((noipa, aligned(64)))
enum { INNER = 4, WORDS = 256, FAR = 1 << 24 };

static volatile uint64_t words[WORDS];
static double fractions = 1.5;
/* Larger than any cache; each word is the index of another one. */
static uint32_t *far;

/* Dependent steps, one after the other. */
static inline __attribute__((always_inline)) uint64_t chain(uint64_t x, int steps)
{
    for (int i = 0; i < steps; i++)
        x = x * 6364136223846793005u + 1442695040888963407u;
    return x;
}

/* Independent steps, as many at once as the processor can. */
static inline __attribute__((always_inline)) uint64_t wide(uint64_t x, int steps)
{
    uint64_t a = x, b = x + 1, c = x + 2, d = x + 3;
    for (int i = 0; i < steps; i++) {
        a += a << 3 ^ i;
        b += b << 5 ^ i;
        c ^= c >> 7;
        d += d << 1;
    }
    return a ^ b ^ c ^ d;
}

static inline __attribute__((always_inline)) uint64_t stores(uint64_t x, int steps)
{
    for (int i = 0; i < steps; i++)
        words[(x + i) % WORDS] = x ^ i;
    return x + 1;
}

static inline __attribute__((always_inline)) uint64_t loads(uint64_t x, int steps)
{
    uint64_t sum = 0;
    for (int i = 0; i < steps; i++)
        sum += words[(x + i) % WORDS];
    return sum;
}

/* Ends with slow instructions. */
static inline __attribute__((always_inline)) uint64_t divisions(uint64_t x, int steps)
{
    double y = (double)(x % 1000 + 1);
    for (int i = 0; i < steps; i++)
        y = fractions / y + 1;
    return (uint64_t)y;
}

/* Ends with a load from memory whose address is known from the start. */
static inline __attribute__((always_inline)) uint64_t miss(uint64_t x, int steps)
{
    uint64_t at = x * 6364136223846793005u >> 40;
    return chain(x, steps) + far[at % FAR];
}

/* Successive branches that cannot be predicted. */
static inline __attribute__((always_inline)) uint64_t branches(uint64_t x, int steps)
{
    uint64_t bits = x * 6364136223846793005u + 1442695040888963407u;
    for (int i = 0; i < steps; i++) {
        if (bits >> 63)
            __asm__ volatile("" : "+r"(x));
        else
            x += words[i % WORDS];
        bits = bits * 6364136223846793005u + 1;
    }
    return x + bits;
}

#define KINDS \
    KIND(chain_1, chain(x, 1)) \
    KIND(chain_5, chain(x, 5)) \
    KIND(chain_20, chain(x, 24)) \
    KIND(chain_50, chain(x, 56)) \
    KIND(chain_200, chain(x, 220)) \
    KIND(chain_1000, chain(x, 1100)) \
    KIND(chain_10000, chain(x, 11000)) \
    KIND(wide_25, wide(x, 38)) \
    KIND(wide_100, wide(x, 150)) \
    KIND(stores_30, stores(x, 80)) \
    KIND(stores_100, stores(x, 200)) \
    KIND(loads_30, loads(x, 120)) \
    KIND(loads_100, loads(x, 300)) \
    KIND(divisions_30, divisions(x, 6)) \
    KIND(divisions_100, divisions(x, 20)) \
    KIND(divisions_1000, divisions(x, 200)) \
    KIND(divisions_10000, divisions(x, 2000)) \
    KIND(miss_100, miss(x, 1)) \
    KIND(miss_1000, miss(x, 1100)) \
    KIND(branches_50, branches(x, 8)) \
    KIND(branches_1000, branches(x, 160))

#define KIND(name, work) \
    APART uint64_t name(uint64_t x) { return work; } \
    APART static uint64_t twin_of_##name(uint64_t x) { return work; }
KINDS
#undef KIND

#define NESTED \
    NEST(nested_chain_20, chain_20) \
    NEST(nested_chain_50, chain_50) \
    NEST(nested_chain_200, chain_200) \
    NEST(nested_wide_100, wide_100) \
    NEST(nested_loads_30, loads_30)

#define NEST(name, inner) \
    APART uint64_t name(uint64_t x) \
    { \
        for (int i = 0; i < INNER; i++) \
            x = inner(x); \
        return x + 1; \
    } \
    APART static uint64_t twin_of_##name(uint64_t x) \
    { \
        for (int i = 0; i < INNER; i++) \
            x = twin_of_##inner(x); \
        return x + 1; \
    }
NESTED
#undef NEST

APART static uint64_t nothing(uint64_t x)
{
    return x;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static uint64_t state = 1;
static int is_dependent;

static double each(uint64_t (*function)(uint64_t), long calls)
{
    uint64_t x = state, sum = 0;
    double from = now();
    if (is_dependent)
        for (long i = 0; i < calls; i++)
            x = function(x);
    else
        for (long i = 0; i < calls; i++)
            sum += function(x + (uint64_t)i);
    double took = now() - from;
    state = x + sum;
    return took / (double)calls;
}

static double least(uint64_t (*function)(uint64_t), long calls, long rounds)
{
    double least = each(function, calls);
    for (long i = 1; i < rounds; i++) {
        double took = each(function, calls);
        if (took < least)
            least = took;
    }
    return least;
}

int main(int argc, char **argv)
{
    long calls = argc > 3 ? atol(argv[1]) : 0, rounds = argc > 3 ? atol(argv[2]) : 0;
    if (calls < 1 || rounds < 1)
        return 2;
    is_dependent = strcmp(argv[3], "dependent") == 0;
    far = malloc(FAR * sizeof *far);
    if (!far)
        return 1;
    for (uint64_t i = 0; i < FAR; i++)
        far[i] = (uint32_t)(i * 2654435761u % FAR);
    double call = least(nothing, calls, rounds);
#define KIND(name, work) printf("twin " #name " %.3f\n", least(twin_of_##name, calls, rounds) - call);
#define NEST(name, inner) KIND(name, inner)
    KINDS NESTED
#undef KIND
#define KIND(name, work) each(name, calls * rounds);
    KINDS NESTED
    return state == 0;
}
