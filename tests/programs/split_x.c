/* Calls from inlined functions in two units: `work` is called in `inl`, which is inlined into
 * `mid`; `work2` in `inl2`, which is inlined into `other`. */
#include <stdio.h>
#include "split.h"

static long calls;

__attribute__((noinline)) long work(long x)
{
    calls++;
    volatile long y = x;
    return y + 1;
}

static inline __attribute__((always_inline)) long inl(long x)
{
    return work(x) + 2; /* line 17 */
}

__attribute__((noinline)) long mid(long x)
{
    return inl(x) + /* line 22 */
           other(x) + 1;
}

int main(void)
{
    long sum = 0;
    for (int i = 0; i < 100; i++)
        sum += mid(i);
    printf("%ld %ld\n", calls, sum);
    return 0;
}
