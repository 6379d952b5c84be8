// Paths whose counts, callers and times the program knows. `work` has a path for each kind: two
// without a loop, one with a loop, one that an exception leaves, one that longjmp leaves, and one
// that calls `work` again. Two functions call it. Prints a line for each kind and caller:
// `kind caller count ns`. The argument is how often each is called.
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#define NOINLINE __attribute__((noinline, noclone, noipa))

static jmp_buf back;
static volatile long sink;

static long now()
{
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}

// Waits for so many nanoseconds.
NOINLINE void spend(long ns)
{
    const long end = now() + ns;
    while (now() < end)
        sink++;
}

NOINLINE void throws()
{
    spend(5000);
    throw 1;
}

NOINLINE void jumps()
{
    spend(5000);
    longjmp(back, 1);
}

NOINLINE long work(int kind, long n)
{
    long sum = n;
    switch (kind) {
#if OTHER == 2
    case 100: // never
        sum = 0;
        break;
#endif
    case 0: // fast
        sum += 3;
        spend(1000);
        break;
    case 1: // slow
        sum *= 7;
        spend(20000);
        break;
    case 2: // loop
        for (long i = 0; i < n; i++) {
            if (i % 4 == 0)
                spend(3000);
            else
                sum += i;
        }
        break;
    case 3: // thrown
        throws();
        break;
    case 4: // jumped
        jumps();
        break;
    case 5: // again
        spend(2000);
        sum += work(1, n) + work(0, n);
        break;
    }
    return sum;
}

static void call(int kind)
{
    try {
        if (setjmp(back) == 0)
            sink += work(kind, 8);
    } catch (int) {
        sink++;
    }
}

NOINLINE long from_left(int kind)
{
    const long start = now();
    call(kind);
    return now() - start;
}

NOINLINE long from_right(int kind)
{
    const long start = now();
    call(kind);
    call(kind);
    return now() - start;
}

int main(int argc, char **argv)
{
    const long times = argc > 1 ? atol(argv[1]) : 100;
    long ns[6][2] = {};
    for (long i = 0; i < times; i++)
        for (int kind = 0; kind < 6; kind++) {
            ns[kind][0] += from_left(kind);
            ns[kind][1] += from_right(kind);
        }
    for (int kind = 0; kind < 6; kind++) {
        printf("%d from_left %ld %ld\n", kind, times, ns[kind][0]);
        printf("%d from_right %ld %ld\n", kind, 2 * times, ns[kind][1]);
    }
    return 0;
}
