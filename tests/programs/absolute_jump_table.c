/* Switches with tables of absolute addresses, in a program at a fixed address: with calls before
 * and in the cases, in a function without data on the stack, and in one that leaves through a table
 * of functions. */
#include "counted.h"

#include <stdio.h>

NOINLINE static long twice(long x) { return work(x) + work(x + 1); }
NOINLINE static long less(long x) { return work(x - 1) - 1; }
NOINLINE static long more(long x) { return work(x + 1) + 1; }

static long (*const functions[])(long) = {twice, less, more, work};

/* Leaves through a table, with the stack pointer as at the entry. */
NOINLINE static long leaves(long i, long x) { return functions[i & 3](x); }

/* Leaves through a table, after a switch. */
NOINLINE long both(long i, long x)
{
    x += work(x);
    switch (i) {
    case 0: x += less(x) * 3; break;
    case 1: x -= twice(x); break;
    case 2: x += more(x) ^ 5; break;
    case 3: x ^= work(x); break;
    case 4: x += twice(x) | 1; break;
    case 5: x -= less(x) + more(x); break;
    }
    return functions[x & 3](x);
}

NOINLINE long step(long i, long x)
{
    long before = leaves(i, x);
    switch (i) {
    case 0: x += work(x); break;
    case 1: x -= twice(x); /* fall through */
    case 2: x += less(x); break;
    case 3: x ^= more(x); /* fall through */
    case 4: x += twice(x + before); break;
    case 5: return work(x) - before;
    case 6: x += less(x) + more(x); break;
    case 7: x = both(x & 7, x); break;
    case 8: x -= leaves(x, before); break;
    case 9: x += more(before); break;
    default: x ^= 77; break;
    }
    return x + before;
}

/* A switch in a function without a frame. */
NOINLINE long jumps(long i, long x)
{
    switch (i) {
    case 0: return work(x);
    case 1: return twice(x + 1);
    case 2: return less(x ^ 2);
    case 3: return more(x + 3);
    case 4: return work(x - 4);
    case 5: return both(x & 3, x);
    case 6: return twice(x * 6);
    }
    return x;
}

int main(void)
{
    unsigned long sum = 0;
    for (long i = 0; i < 600; i++) {
        sum = sum * 7 + (unsigned long)step(i % 11, i);
        sum = sum * 5 + (unsigned long)jumps(i % 8, i);
    }
    printf("sum %lu\ncalls work %ld\n", sum, calls);
    return 0;
}
