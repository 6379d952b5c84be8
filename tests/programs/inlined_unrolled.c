// A function that is inlined into a loop of four iterations, which compilers unroll: ROUNDS
#include <stdio.h>
#include <stdlib.h>

static volatile unsigned long entered;

static inline __attribute__((always_inline)) unsigned step(unsigned x)
{
    entered++;
    return x * 1664525u + (x >> 3);
}

__attribute__((noinline)) unsigned leaf(unsigned x)
{
    __asm__ volatile("" : "+r"(x));
    return x;
}

__attribute__((noinline)) unsigned unrolled(unsigned x)
{
    x = leaf(x);
    for (int i = 0; i < 4; i++)
        x = step(x);
    return leaf(x);
}

__attribute__((noinline)) unsigned single(unsigned x)
{
    x = leaf(x);
    return leaf(step(x));
}

// All of it is the copy.
__attribute__((noinline)) unsigned whole(unsigned x)
{
    return step(x);
}

int main(int count, char **arguments)
{
    unsigned x = count;
    for (unsigned long i = strtoul(arguments[1], NULL, 10); i > 0; i--)
        x += unrolled(x) + single(x) + whole(x);
    printf("%lu %u\n", entered, x & 1);
    return 0;
}
