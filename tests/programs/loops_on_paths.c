/* Calls of `leaf` in loops: in a loop in another one, in a loop of a function that is inlined into
 * a loop, in a loop that is left by the call of the other, and in no loop. Prints `ok`. The test
 * finds the lines by the marks in comments. */
#include <stdio.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))

static volatile long sink;

NOINLINE void leaf(long x)
{
    sink += x;
}

static inline __attribute__((always_inline)) void each(long n)
{
    for (long k = 0; k < n; k++) { /* first of each */
        leaf(k);                   /* call in each */
        sink++;                    /* last of each */
    }
}

NOINLINE void work(long n)
{
    for (long i = 0; i < n; i++) { /* first of outer */
        for (long j = 0; j < i; j++) { /* first of inner */
            leaf(j); /* call in inner */
            sink++; /* last of inner */
        }
        each(i); /* call of each */
        sink--; /* last of outer */
    }
    leaf(n); /* call in none */
    long x = n;
    do { /* first of last */
        x = x * 3 % 101;
        leaf(x); /* call in last */
    } while (x != n && sink); /* last of last */
}

int main(void)
{
    work(7);
    puts("ok");
    return 0;
}
