/* Call paths into `work` through frames that GCC has aligned for their locals and that have
 * arguments on the stack: their callers are found through a pointer in the frame. Prints its own
 * number of calls. */
#include <stdio.h>
#include <string.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))

static long calls;

NOINLINE long work(long x)
{
    calls++;
    return x * 3 + 1;
}

NOINLINE static long aligned(long a, long b, long c, long d, long e, long f, long g, long deeper)
{
    _Alignas(64) long room[8];
    memset(room, (int)a, sizeof room);
    __asm__ volatile("" : : "r"(room) : "memory");
    long sum = work(a + room[b & 7]) + g;
    if (deeper > 0)
        sum += aligned(b, c, d, e, f, g, sum & 0xff, deeper - 1) + room[c & 7];
    return sum + work(sum);
}

/* In between, with an ordinary frame. */
NOINLINE static long plain(long n, long deeper)
{
    char room[n & 255];
    memset(room, (int)n, sizeof room);
    __asm__ volatile("" : : "r"(room) : "memory");
    return aligned(n, 1, 2, 3, 4, 5, 6, deeper) + work(n);
}

int main(void)
{
    long sum = 0;
    for (long i = 0; i < 40; i++)
        sum = plain(i, i % 5) + sum * 5;
    printf("sum %ld\n", sum & 0xffff);
    printf("calls work %ld\n", calls);
    return 0;
}
