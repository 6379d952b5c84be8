/* Threads that call a tiny function very often, one of medium size often, and one that takes long
 * now and then, and count the calls themselves.
 *
 *     throttled THREADS TINY MEDIUM
 *
 * TINY and MEDIUM are the calls of `tiny` and `medium` for each call of `costly`, which takes about
 * 100 us. Prints `ready`, and begins at SIGUSR1 with `begun`. At the next one the threads stop, and
 * it prints `calls NAME N` for each function, and `idle`. Ends at SIGTERM with `ok`. */
#include "gate.h"
#include <stdatomic.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))
#define MOST 16

enum { TINY, MEDIUM, COSTLY, FUNCTIONS };

static const char *const names[] = {"tiny", "medium", "costly"};

struct counter {
    uint64_t of[FUNCTIONS];
    uint64_t sum;
    char pad[64];
};

static struct counter counters[MOST];
static uint64_t tiny_calls, medium_calls;
static atomic_int stop;

/* Some 2 ns: its calls are counted by its caller. */
NOINLINE uint64_t tiny(uint64_t x)
{
    return x * 3 + 1;
}

static inline uint64_t work(uint64_t x, int rounds)
{
    for (int i = 0; i < rounds; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        __asm__ volatile("" : "+r"(x));
    }
    return x;
}

NOINLINE uint64_t medium(uint64_t x)
{
    return work(x, 50);
}

NOINLINE uint64_t costly(uint64_t x)
{
    return work(x, 40000);
}

static void *thread(void *argument)
{
    struct counter *own = argument;
    uint64_t x = 88172645463325252ull;
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        for (uint64_t i = 0; i < tiny_calls; i++)
            x = tiny(x);
        own->of[TINY] += tiny_calls;
        for (uint64_t i = 0; i < medium_calls; i++)
            x = medium(x);
        own->of[MEDIUM] += medium_calls;
        x = costly(x);
        own->of[COSTLY]++;
    }
    own->sum = x;
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    int threads = atoi(argv[1]);
    tiny_calls = strtoull(argv[2], NULL, 10);
    medium_calls = strtoull(argv[3], NULL, 10);
    if (threads < 1 || threads > MOST)
        return 2;
    await_nothing_yet();
    say("ready");
    await_test(SIGUSR1);
    pthread_t handles[MOST];
    for (int i = 0; i < threads; i++)
        pthread_create(&handles[i], NULL, thread, &counters[i]);
    say("begun");
    await_test(SIGUSR1);
    atomic_store(&stop, 1);
    struct counter sum = {0};
    for (int i = 0; i < threads; i++) {
        pthread_join(handles[i], NULL);
        for (int f = 0; f < FUNCTIONS; f++)
            sum.of[f] += counters[i].of[f];
    }
    for (int f = 0; f < FUNCTIONS; f++)
        printf("calls %s %llu\n", names[f], (unsigned long long)sum.of[f]);
    say("idle");
    await_test(SIGTERM);
    say("ok");
    return 0;
}
