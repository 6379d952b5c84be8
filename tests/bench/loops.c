/* Ten loops of all kinds: `loops ROUNDS`. For each, prints its name and the least time of an
 * iteration over all rounds, in ns. Build with -O2, and for comparison with --coverage. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))

enum { N = 4096 };

static int32_t numbers[N];
static double reals[N];
static uint8_t bytes[N];
static uint32_t next[N];

NOINLINE long sums(void)
{
    long sum = 0;
    for (long i = 0; i < N; i++)
        sum += numbers[i] ^ sum >> 3;
    return sum;
}

NOINLINE long branches(void)
{
    long sum = 0;
    for (long i = 0; i < N; i++) {
        if (numbers[i] & 1)
            sum += numbers[i] / 7;
        else if (numbers[i] & 2)
            sum ^= numbers[i];
        else
            sum--;
    }
    return sum;
}

NOINLINE long hashes(void)
{
    uint32_t hash = 2166136261u;
    for (long i = 0; i < N; i++)
        hash = (hash ^ bytes[i]) * 16777619u;
    return hash;
}

NOINLINE long follows(void)
{
    uint32_t at = 0;
    long steps = 0;
    do {
        at = next[at];
        steps++;
    } while (at);
    return steps;
}

NOINLINE long dot(void)
{
    double sum = 0;
    for (long i = 0; i < N; i++)
        sum += reals[i] * reals[N - 1 - i];
    return (long)sum;
}

NOINLINE long nested(void)
{
    long sum = 0;
    for (long i = 0; i < N / 4; i++)
        for (long k = 0; k < 4; k++)
            sum += numbers[i] % (k + 3);
    return sum;
}

NOINLINE long interprets(void)
{
    long x = 0;
    for (long i = 0; i < N; i++)
        switch (bytes[i] & 7) {
        case 0: x++; break;
        case 1: x -= 3; break;
        case 2: x *= 5; break;
        case 3: x ^= i; break;
        case 4: x >>= 1; break;
        case 5: x = ~x; break;
        case 6: x += bytes[i]; break;
        default: x |= 1;
        }
    return x;
}

NOINLINE long scans(void)
{
    long words = 0;
    int inside = 0;
    for (long i = 0; i < N; i++) {
        int is_letter = bytes[i] > 64;
        if (is_letter && !inside)
            words++;
        inside = is_letter;
    }
    return words;
}

NOINLINE long searches(void)
{
    long found = 0;
    for (long i = 0; i < N / 12; i++) {
        long low = 0, high = N;
        while (low + 1 < high) {
            long middle = (low + high) / 2;
            if (next[middle] <= (uint32_t)i * 11 % N)
                low = middle;
            else
                high = middle;
        }
        found += low;
    }
    return found;
}

NOINLINE long halves(void)
{
    long steps = 0;
    for (uint64_t i = 1; i <= N / 64; i++)
        for (uint64_t x = i; x != 1; steps++)
            x = x & 1 ? 3 * x + 1 : x / 2;
    return steps;
}

static const struct { const char *name; long (*loop)(void); } all[] = {
    {"sums", sums},     {"branches", branches}, {"hashes", hashes},         {"follows", follows},
    {"dot", dot},       {"nested", nested},     {"interprets", interprets}, {"scans", scans},
    {"searches", searches}, {"halves", halves},
};

static double now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at);
    return (double)at.tv_sec * 1e9 + (double)at.tv_nsec;
}

int main(int argc, char **argv)
{
    enum { REPEATS = 50 };
    long rounds = argc > 1 ? atol(argv[1]) : 20, result = 0;
    srand(1);
    for (int i = 0; i < N; i++) {
        numbers[i] = rand();
        bytes[i] = (uint8_t)(rand() % 128);
        reals[i] = numbers[i];
        next[i] = (uint32_t)(i + 1) % N;
    }
    for (size_t l = 0; l < sizeof all / sizeof *all; l++) {
        double least = 1e18;
        for (long r = 0; r < rounds; r++) {
            double start = now();
            for (int i = 0; i < REPEATS; i++)
                result += all[l].loop();
            double took = now() - start;
            least = took < least ? took : least;
        }
        printf("%s %.4f\n", all[l].name, least / REPEATS / N);
    }
    return result == 42;
}
