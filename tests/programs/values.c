/* Calls functions with arguments and results of several kinds, and prints the sums of their values.
 *
 *     values
 */
#include <limits.h>
#include <stdio.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))

struct large {
    long numbers[5];
};

NOINLINE int narrow(signed char a, unsigned short b, long c, int d)
{
    __asm__("" ::"r"(a), "r"(b), "r"(d));
    return (int)(c - 500);
}

NOINLINE double real(float single, double twice)
{
    __asm__("" ::"x"(single));
    return -twice;
}

NOINLINE long by_memory(struct large given)
{
    return given.numbers[1];
}

/* The calls for which each of the test's two comparisons holds, including nested calls. */
NOINLINE int nested(int depth)
{
    int result = depth > 0 ? nested(depth - 1) : -3;
    __asm__("" : "+r"(result));
    return result + 1;
}

NOINLINE long extreme(long value)
{
    return -value;
}

int main(void)
{
    long sums[4] = {0};
    struct large large = {{1, 2, 3, 4, 5}};
    for (long i = 0; i < 1000; i++) {
        sums[0] += narrow((signed char)i, (unsigned short)(i * 100), i, -7);
        sums[1] += (long)real((float)i, (double)(2 * i));
        sums[2] += by_memory(large);
        sums[3] += nested((int)(i % 8));
        extreme(i % 3 == 0 ? -i : LONG_MAX - i);
    }
    printf("ok %ld %ld %ld %ld\n", sums[0], sums[1], sums[2], sums[3]);
    return 0;
}
