/* Call paths through code that only `.debug_frame` describes: its own code, compiled in that way,
 * and debug_frame.S. Prints `calls work N`. */
#include <stdio.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))

typedef long (*unary)(long);

long moved(unary, long);
long moved_with_rbp(unary, long);

static long calls;

NOINLINE long work(long n)
{
    calls++;
    return n * 3 + 1;
}

NOINLINE static long plain(long n) { return work(n) + 1; }

/* Has a frame pointer, without which its stack pointer cannot be derived. */
NOINLINE static long variable(long n)
{
    volatile char room[n % 64 + 1];
    room[n % 64] = (char)n;
    return moved(plain, n) + room[n % 64];
}

NOINLINE static long both(long n) { return moved_with_rbp(variable, n) + moved(work, n + 1); }

NOINLINE static long down(long n) { return n == 0 ? both(n) : moved_with_rbp(down, n - 1) + both(n); }

int main(void)
{
    long sum = 0;
    for (long i = 0; i < 25; i++)
        sum += down(i % 9) + moved(both, i);
    printf("calls work %ld\nsum %ld\n", calls, sum);
    return 0;
}
