/* Threads that compute without a pause and check every result against a second computation.
 *
 *     busy THREADS SECONDS [COUNTER_FILE]
 *
 * Ends after SECONDS or on SIGTERM with one line: `ok calls N` or `wrong THREAD ROUND`. Every call
 * of `step` is counted in COUNTER_FILE, in one 64-bit number per thread on its own cache line,
 * which a test may map and read at any moment. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))
#define MOST 64

struct counter {
    _Atomic uint64_t calls;
    char pad[56];
};

static struct counter *counters;
static atomic_int stop;
static _Thread_local int self;

NOINLINE static uint64_t mix(uint64_t x)
{
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdu;
    return x ^ x >> 29;
}

NOINLINE uint64_t step(uint64_t x, uint64_t y)
{
    _Atomic uint64_t *calls = &counters[self].calls;
    atomic_store_explicit(calls, atomic_load_explicit(calls, memory_order_relaxed) + 1,
                          memory_order_relaxed);
    uint64_t r = mix(x) + y;
    return r * 2 + 1;
}

NOINLINE static uint64_t add_left(uint64_t x) { return step(x, 1) + 1; }
NOINLINE static uint64_t add_right(uint64_t x) { return step(1, x) ^ 1; }
NOINLINE static uint64_t jump(uint64_t x) { return step(x, x); }

NOINLINE static uint64_t down(uint64_t x, int depth)
{
    return depth == 0 ? jump(x) : (down(x + depth, depth - 1) ^ depth) + 1;
}

static uint64_t (*const table[])(uint64_t) = {add_left, add_right, jump};

/* The same arithmetic with everything inlined: the expected result of the calls. */
static uint64_t plain_step(uint64_t x, uint64_t y)
{
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdu;
    return ((x ^ x >> 29) + y) * 2 + 1;
}

static uint64_t expected(uint64_t x, int depth)
{
    uint64_t deep = x + (uint64_t)(depth * (depth + 1) / 2);
    uint64_t climbed = plain_step(deep, deep);
    for (int d = 1; d <= depth; d++)
        climbed = (climbed ^ (uint64_t)d) + 1;
    return plain_step(x, 1) + 1 + (plain_step(1, x) ^ 1) + plain_step(x, x) +
           climbed;
}

static void *thread(void *argument)
{
    self = (int)(intptr_t)argument;
    uint64_t seed = 88172645463325252u + (uint64_t)self;
    for (uint64_t round = 0; !atomic_load_explicit(&stop, memory_order_relaxed); round++) {
        int depth = (int)(seed % 23);
        double a = (double)(seed & 0xffff), b = (double)(round & 0xff);
        double product = a * b;
        uint64_t sum = 0;
        for (int i = 0; i < 3; i++)
            sum += table[i](seed);
        sum += down(seed, depth);
        /* b and product are in vector registers or in the red zone across the calls */
        if (sum != expected(seed, depth) || product != a * b) {
            printf("wrong %d %llu\n", self, (unsigned long long)round);
            fflush(stdout);
            _exit(1);
        }
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
    }
    return NULL;
}

static void on_term(int signal)
{
    (void)signal;
    atomic_store(&stop, 1);
}

int main(int argc, char **argv)
{
    int threads = argc > 1 ? atoi(argv[1]) : 8;
    double seconds = argc > 2 ? atof(argv[2]) : 10;
    if (threads < 1 || threads > MOST)
        return 2;
    int flags = MAP_SHARED | MAP_ANONYMOUS, fd = -1;
    if (argc > 3) {
        fd = open(argv[3], O_RDWR | O_CREAT, 0666);
        if (fd < 0 || ftruncate(fd, sizeof(struct counter) * MOST) != 0)
            return 2;
        flags = MAP_SHARED;
    }
    counters = mmap(NULL, sizeof(struct counter) * MOST, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (counters == MAP_FAILED)
        return 2;
    signal(SIGTERM, on_term);
    signal(SIGHUP, SIG_IGN);
    pthread_t handles[MOST];
    for (intptr_t i = 0; i < threads; i++)
        pthread_create(&handles[i], NULL, thread, (void *)i);
    /* A new thread has all signals blocked. Once it counts, it has started. */
    for (int i = 0; i < threads; i++)
        while (__atomic_load_n(&counters[i].calls, __ATOMIC_RELAXED) == 0)
            usleep(100);
    puts("ready");
    fflush(stdout);
    struct timespec start, now, pause = {0, 5000000};
    clock_gettime(CLOCK_MONOTONIC, &start);
    do {
        nanosleep(&pause, NULL);
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (!atomic_load(&stop) &&
             (double)(now.tv_sec - start.tv_sec) + 1e-9 * (double)(now.tv_nsec - start.tv_nsec) < seconds);
    atomic_store(&stop, 1);
    uint64_t calls = 0;
    for (int i = 0; i < threads; i++) {
        pthread_join(handles[i], NULL);
        calls += atomic_load(&counters[i].calls);
    }
    printf("ok calls %llu\n", (unsigned long long)calls);
    return 0;
}
