/* The benchmark's target: `tiny` is called in a loop, on paths of a chosen depth.
 *
 * usage: target DEPTH LEVELS PATHS ORDER CALLS ROUNDS THREADS WAY [wait]
 *   DEPTH    frames above tiny: clone3, start_thread, thread, fixed functions, loop, LEVELS
 *   LEVELS   functions between loop and tiny; each call descends and returns through them
 *   PATHS    number of paths; a path is a string of LEVELS + 1 bits: each frame from loop
 *            inwards calls one of two functions, the last one tiny from one of two places
 *   ORDER    of the paths: cyclic or random
 *   CALLS    in each round and thread, after one untimed call on each path
 *   WAY      tiny, backtrace (glibc, before each call) or unwind (libunwind, before each call)
 *   wait     start at a line on standard input, end at the next line or the end of input
 * `twin` is like tiny but never instrumented. In each round all threads together call: twin from
 * loop; twin from loop between two reads of the time-stamp counter, the floor of any timer; the
 * same after comparing DEPTH words with remembered ones, the floor of a timer by path; the same
 * with a second read that waits for twin (lfence); twin on the paths; and tiny on the paths in the
 * WAY. Prints these six, in ns of a thread's processor time per call, as the minimum over the
 * rounds; and the bytes in use of the ipath segment of this process, or -1.
 */
#include <execinfo.h>
#include <glob.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>
#ifdef LIBUNWIND
#define UNW_LOCAL_ONLY
#include <libunwind.h>
#endif

#define APART __attribute__((noipa, aligned(64)))
#define MOST_THREADS 64
#define MOST_ROUNDS 256
#define MOST_LEVELS 200
#define MOST_COMPARED 256
/* clone3, start_thread, thread and loop. */
#define AROUND 4

enum kind { FLAT, RDTSC, COMPARED, ORDERED, PLAIN, TINY, BACKTRACE, UNWIND, KINDS = 6 };

/* A word of the stack: its address and its remembered value. */
struct word {
    volatile uint64_t *at;
    uint64_t was;
};

static int depth, levels, rounds, threads;
static uint64_t paths;
static int is_random;
static long calls;
static enum kind way = TINY;
static __thread enum kind kind;
static __thread volatile uint64_t sink;
static double times[MOST_THREADS][MOST_ROUNDS][KINDS];
static pthread_barrier_t together;

APART void tiny(uint64_t x)
{
    sink = sink * 3 + x;
}

APART void twin(uint64_t x)
{
    sink = sink * 3 + x;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static inline __attribute__((always_inline)) void call(uint64_t x)
{
    if (kind == PLAIN) {
        twin(x);
    } else {
        void *frames[256];
        if (kind == BACKTRACE)
            sink += (uint64_t)backtrace(frames, 256);
#ifdef LIBUNWIND
        if (kind == UNWIND)
            sink += (uint64_t)unw_backtrace(frames, 256);
#endif
        tiny(x);
    }
}

APART static void left(uint64_t bits, int below);
APART static void right(uint64_t bits, int below);

/* The assembly keeps the two call sites apart, and prevents tail calls. */
static inline __attribute__((always_inline)) void go(uint64_t bits, int below)
{
    if (below == 0) {
        if (bits & 1) {
            __asm__ volatile("# left" ::: "memory");
            call(bits);
            __asm__ volatile("# left" ::: "memory");
        } else {
            __asm__ volatile("# right" ::: "memory");
            call(bits);
            __asm__ volatile("# right" ::: "memory");
        }
    } else if (bits & 1) {
        left(bits >> 1, below - 1);
    } else {
        right(bits >> 1, below - 1);
    }
    __asm__ volatile("" ::: "memory");
}

APART static void left(uint64_t bits, int below)
{
    go(bits, below);
}

APART static void right(uint64_t bits, int below)
{
    go(bits, below);
}

/* An odd factor permutes the numbers of the bits used: different paths stay different. */
static uint64_t path_bits(uint64_t path)
{
    return (path * 0x9E3779B1u) & (levels < 62 ? (2ull << levels) - 1 : ~0ull);
}

/* One round of one kind of call. A single loop makes all calls, so that a path is one path. */
static inline __attribute__((always_inline)) void pass(long count, int random, uint64_t *state)
{
    uint64_t x = *state, next = 0;
    for (; count > 0; count--) {
        uint64_t path = next;
        if (random) {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            path = ((x >> 32) * paths) >> 32;
        } else {
            next = next + 1 == paths ? 0 : next + 1;
        }
        go(path_bits(path), levels);
    }
    *state = x;
}

/* twin between two reads of the counter, after comparing `count` words. */
static inline __attribute__((always_inline)) void floor_of(const struct word *words, int count, int is_ordered)
{
    static __thread uint64_t start;
    for (long i = 0; i < calls; i++) {
        for (int word = 0; word < count; word++)
            if (*words[word].at != words[word].was)
                abort();
        *(volatile uint64_t *)&start = __rdtsc();
        twin((uint64_t)i);
        if (is_ordered)
            _mm_lfence();
        sink += __rdtsc() - start;
    }
}

APART static void loop(intptr_t number)
{
    volatile uint64_t stack[MOST_COMPARED];
    struct word words[MOST_COMPARED];
    int compared = depth < MOST_COMPARED ? depth : MOST_COMPARED;
    for (int i = 0; i < compared; i++) {
        stack[i] = (uint64_t)i;
        words[i] = (struct word){&stack[i], (uint64_t)i};
    }
    uint64_t state = 88172645463325252ull + (uint64_t)number;
    for (int turn = KINDS - 1; turn < (rounds + 1) * KINDS; turn++) {
        int round = turn / KINDS - 1;
        kind = turn % KINDS == TINY ? way : (enum kind)(turn % KINDS);
        pthread_barrier_wait(&together);
        double from = now();
        if (kind == FLAT) {
            for (long i = 0; i < calls; i++)
                twin((uint64_t)i);
        } else if (kind == RDTSC) {
            for (long i = 0; i < calls; i++) {
                uint64_t before = __rdtsc();
                twin((uint64_t)i);
                sink += __rdtsc() - before;
            }
        } else if (kind == COMPARED) {
            floor_of(words, compared, 0);
        } else if (kind == ORDERED) {
            floor_of(words, compared, 1);
        } else {
            pass(round < 0 ? (long)paths : calls, is_random && round >= 0, &state);
        }
        if (round >= 0)
            times[number][round][turn % KINDS] = (now() - from) / (double)calls;
    }
}

/* Three functions in turn, so that a stack is not one function again and again. */
APART static void first(int below, intptr_t number);
APART static void second(int below, intptr_t number);
APART static void third(int below, intptr_t number);

#define STEP(name, next)                                                                           \
    APART static void name(int below, intptr_t number)                                             \
    {                                                                                              \
        if (below == 0)                                                                            \
            loop(number);                                                                          \
        else                                                                                       \
            next(below - 1, number);                                                               \
        __asm__ volatile("" ::: "memory");                                                         \
    }
STEP(first, second)
STEP(second, third)
STEP(third, first)

static void *thread(void *number)
{
    int fixed = depth - levels - AROUND;
    if (fixed == 0)
        loop((intptr_t)number);
    else
        first(fixed - 1, (intptr_t)number);
    return NULL;
}

static double least(int k)
{
    double result = 0;
    for (int round = 0; round < rounds; round++) {
        double sum = 0;
        for (int number = 0; number < threads; number++)
            sum += times[number][round][k];
        if (round == 0 || sum / threads < result)
            result = sum / threads;
    }
    return result;
}

static long segment_bytes(void)
{
    char pattern[64];
    glob_t found;
    struct stat file;
    snprintf(pattern, sizeof pattern, "/dev/shm/ipath-%d-*", (int)getpid());
    if (glob(pattern, 0, NULL, &found) != 0 || stat(found.gl_pathv[0], &file) != 0)
        return -1;
    return (long)file.st_blocks * 512;
}

static int parse(char **argv)
{
    depth = atoi(argv[1]);
    levels = atoi(argv[2]);
    paths = strtoull(argv[3], NULL, 10);
    is_random = strcmp(argv[4], "random") == 0;
    calls = atol(argv[5]);
    rounds = atoi(argv[6]);
    threads = atoi(argv[7]);
    if (strcmp(argv[8], "backtrace") == 0)
        way = BACKTRACE;
#ifdef LIBUNWIND
    else if (strcmp(argv[8], "unwind") == 0)
        way = UNWIND;
#endif
    else if (strcmp(argv[8], "tiny") != 0)
        return 0;
    return levels >= 0 && levels <= MOST_LEVELS && depth >= levels + AROUND && paths >= 1
        && paths <= UINT32_MAX && (levels > 30 || paths <= 2ull << levels) && calls >= 1
        && rounds >= 1 && rounds <= MOST_ROUNDS && threads >= 1 && threads <= MOST_THREADS;
}

int main(int argc, char **argv)
{
    if (argc < 9 || argc > 10 || !parse(argv))
        return 2;
    if (argc == 10)
        getchar();
    pthread_t handles[MOST_THREADS];
    pthread_barrier_init(&together, NULL, (unsigned)threads);
    for (intptr_t i = 0; i < threads; i++)
        if (pthread_create(&handles[i], NULL, thread, (void *)i) != 0)
            return 1;
    for (int i = 0; i < threads; i++)
        pthread_join(handles[i], NULL);
    printf("%.3f %.3f %.3f %.3f %.3f %.3f %ld\n", least(FLAT), least(RDTSC), least(COMPARED),
        least(ORDERED), least(PLAIN), least(TINY), segment_bytes());
    fflush(stdout);
    if (argc == 10)
        getchar();
    return 0;
}
