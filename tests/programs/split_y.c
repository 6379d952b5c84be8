#include "split.h"

__attribute__((noinline)) long work2(long x)
{
    volatile long y = x;
    return y + 1;
}

static inline __attribute__((always_inline)) long inl2(long x)
{
    return work2(x) + 2; /* line 11 */
}

long other(long x)
{
    return inl2(x) + 1; /* line 16 */
}
