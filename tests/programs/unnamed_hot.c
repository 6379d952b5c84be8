/* Two functions that take the time. Once stripped, only the calls in `main`, which is called by its
 * address, lead to them. */
#include <stdio.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))

NOINLINE static long hot(long n)
{
    volatile long sum = n;
    for (long i = 0; i < 100000; i++)
        sum += i;
    return sum;
}

NOINLINE static long warm(long n)
{
    volatile long sum = n;
    for (long i = 0; i < 30000; i++)
        sum += i;
    return sum;
}

int main(void)
{
    puts("ready");
    fflush(stdout);
    long sum = 0;
    for (;;)
        sum += hot(sum) + warm(sum);
}
