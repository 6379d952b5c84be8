/* Functions without symbols and unwind entries: one that jumps through a table of offsets to cases
 * that make calls, including recursive ones, one that leaves only by tail calls, and one that is
 * only jumped to. */
#include "counted.h"

#include <stdio.h>

NOINLINE static long twice(long x) { return work(x) + work(x + 1); }

/* Only jumped to. */
NOINLINE static long landed(long x)
{
    long sum = 0;
    for (long i = 0; i < (x & 3); i++)
        sum += twice(i) ^ work(sum & 7);
    return sum + work(x);
}

/* Leaves only by a jump. */
NOINLINE static long passes(long x)
{
    long more = work(x & 15);
    return landed(x + (more & 3));
}

NOINLINE static long evaluate(const unsigned char *code, long x, long depth)
{
    switch (code[depth]) {
    case 0: return work(x) + 1;
    case 1: x = evaluate(code, x + 1, depth + 1); break;
    case 2: x += twice(x); break;
    case 3: x ^= passes(x) + 2; break;
    case 4: x = work(x) * 3 + evaluate(code, x, depth + 1); break;
    case 5: x -= landed(x) * 5; break;
    case 6: x = twice(x) - evaluate(code, x & 63, depth + 2); break;
    case 7: x |= passes(depth) & 15; break;
    case 8: x = evaluate(code, work(x) & 31, depth + 1); break;
    default: x++; break;
    }
    return work(x & 255) + x;
}

int main(void)
{
    static const unsigned char code[] = {1, 4, 6, 2, 8, 3, 1, 5, 4, 7, 6, 9, 2, 8, 1, 3, 7, 5, 2, 0, 0, 0};
    unsigned long sum = 0;
    for (long i = 0; i < 120; i++)
        sum = sum * 31 + (unsigned long)evaluate(code, i, i % 19);
    printf("sum %lu\ncalls work %ld\n", sum, calls);
    return 0;
}
