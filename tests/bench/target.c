/* What the benchmark measures on: `tiny` is called in a loop under a stack of a chosen depth.
 *
 * usage: target DEPTH CALLS THREADS MODE
 *   MODE plain      call tiny
 *        rdtsc      read the time-stamp counter twice instead: the floor of any timer
 *        backtrace  call glibc's backtrace() in front of tiny
 * Prints: nanoseconds per call (of the slowest thread).
 */
#include <execinfo.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <x86intrin.h>

#define NOINLINE __attribute__((noinline))
#define MOST_THREADS 64

static long calls;
static int depth;
static const char *mode;
static __thread volatile uint64_t sink;
static double results[MOST_THREADS];
static pthread_barrier_t start;

NOINLINE void tiny(uint64_t x)
{
    sink = sink * 3 + x;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

NOINLINE static double innermost(void)
{
    double from = now();
    if (strcmp(mode, "rdtsc") == 0) {
        for (long i = 0; i < calls; i++) {
            uint64_t before = __rdtsc();
            tiny((uint64_t)i);
            sink += __rdtsc() - before;
        }
    } else if (strcmp(mode, "backtrace") == 0) {
        void *frames[256];
        for (long i = 0; i < calls; i++) {
            sink += (uint64_t)backtrace(frames, 256);
            tiny((uint64_t)i);
        }
    } else {
        for (long i = 0; i < calls; i++)
            tiny((uint64_t)i);
    }
    return (now() - from) / (double)calls;
}

/* Three functions in turn, so that a stack is not one function again and again. The empty
 * assembly keeps the calls from becoming jumps. */
NOINLINE static double first(int left);
NOINLINE static double second(int left);
NOINLINE static double third(int left);

#define STEP(name, next)                                                                           \
    NOINLINE static double name(int left)                                                          \
    {                                                                                              \
        double result = left == 0 ? innermost() : next(left - 1);                                  \
        __asm__ volatile("" : "+m"(result));                                                       \
        return result;                                                                             \
    }
STEP(first, second)
STEP(second, third)
STEP(third, first)

static void *thread(void *number)
{
    pthread_barrier_wait(&start);
    results[(intptr_t)number] = first(depth);
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return 2;
    depth = atoi(argv[1]);
    calls = atol(argv[2]);
    int threads = atoi(argv[3]);
    mode = argv[4];
    if (threads < 1 || threads > MOST_THREADS || calls < 1 || depth < 0)
        return 2;
    pthread_t handles[MOST_THREADS];
    pthread_barrier_init(&start, NULL, (unsigned)threads);
    for (intptr_t i = 0; i < threads; i++)
        if (pthread_create(&handles[i], NULL, thread, (void *)i) != 0)
            return 1;
    double slowest = 0;
    for (int i = 0; i < threads; i++) {
        pthread_join(handles[i], NULL);
        if (results[i] > slowest)
            slowest = results[i];
    }
    printf("%.3f\n", slowest);
    return 0;
}
