/* Threads that call functions whose metrics change, and count the calls themselves.
 *
 *     remeasured THREADS
 *
 * Prints `ready`, and begins at SIGUSR1. At the next one the threads stop, and it prints
 * `calls NAME N` for each function, and `idle`. Ends at SIGTERM with `ok`, or at any time with
 * `wrong NAME`. All calls of a function have the same argument, the same number of page faults and
 * the same result. */
#include "gate.h"
#include <stdatomic.h>
#include <time.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))
#define MOST 64

enum { WORK, TAIL, CALLEE, DEEP, SLOW, THROUGH, SMALL, TOUCH, FUNCTIONS };

static const char *const names[] = {"work", "tail", "callee", "deep", "slow", "through", "small", "touch"};

struct counter {
    uint64_t of[FUNCTIONS];
    char pad[64];
};

static struct counter counters[MOST];
static _Thread_local struct counter *own;
static atomic_int stop;

NOINLINE int64_t work(int64_t x, int64_t y)
{
    own->of[WORK]++;
    int64_t a = x * 3 + y;
    if (a & 1)
        return -a;
    a += own->of[WORK] != 0;
    return a ^ 5;
}

NOINLINE int64_t callee(int64_t x)
{
    own->of[CALLEE]++;
    return x * 5 + (own->of[CALLEE] != 0);
}

/* Leaves by a tail call. */
NOINLINE int64_t tail(int64_t x)
{
    own->of[TAIL]++;
    return callee(x + 2);
}

NOINLINE int64_t deep(int64_t depth)
{
    own->of[DEEP]++;
    if (depth == 0)
        return 1;
    int64_t within = deep(depth - 1);
    __asm__ volatile("" : "+r"(within));
    return within + 1;
}

/* Takes longer than any command waits for its end. */
NOINLINE int64_t slow(int64_t ms)
{
    own->of[SLOW]++;
    struct timespec pause = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&pause, NULL);
    return ms + (own->of[SLOW] != 0);
}

/* A function with points. */
NOINLINE int64_t through(int64_t x)
{
    own->of[THROUGH]++;
    return x * 7 + 9 - (own->of[THROUGH] == 0);
}

/* So short that its entry and its return are patched with the same bytes. */
__asm__(".text\n.p2align 4\n.globl small\n.type small, @function\nsmall:\n"
        "\tlea 1(%rdi), %rax\n\tret\n.size small, . - small\n.p2align 4, 0xcc\n");
int64_t small(int64_t x);

/* Has one page fault. */
NOINLINE int64_t touch(volatile char *page)
{
    own->of[TOUCH]++;
    *page = 1;
    return (int64_t)own->of[TOUCH];
}

static void wrong(const char *name)
{
    printf("wrong %s\n", name);
    fflush(stdout);
    _exit(1);
}

static void *thread(void *argument)
{
    own = argument;
    int sleeps = own == counters;
    size_t size = (size_t)sysconf(_SC_PAGESIZE);
    char *page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        wrong("page");
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        for (int i = 0; i < 64; i++)
            if (work(7, 2) != -23 || work(7, 3) != (25 ^ 5))
                wrong("work");
        if (tail(3) != 26)
            wrong("tail");
        if (deep(9) != 10)
            wrong("deep");
        if (through(3) != 30)
            wrong("through");
        own->of[SMALL]++;
        if (small(41) != 42)
            wrong("small");
        madvise(page, size, MADV_DONTNEED);
        touch(page);
        if (sleeps && slow(60) != 61)
            wrong("slow");
    }
    return NULL;
}

int main(int argc, char **argv)
{
    int threads = argc > 1 ? atoi(argv[1]) : 4;
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
