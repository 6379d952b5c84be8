/* Counts the executions of its own lines, and prints them as `FILE:LINE COUNT`.
 *
 *     own_lines ROUNDS */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#include "own_lines.h"

#define NOINLINE __attribute__((noinline, noclone, noipa))

static volatile long own[200], own_inlined[200];
static jmp_buf target;

NOINLINE void leaves(long x)
{
    if (x % 4 == 0)
        longjmp(target, 1);
}

NOINLINE long work(long n)
{
    own[__LINE__]++;
    long sum = 0;
    for (long i = 0; i < n; i++) {
        own[__LINE__]++;
        if (i % 3 == 0) {
            own[__LINE__]++;
            sum += i;
        } else {
            own[__LINE__]++;
            sum ^= i;
        }
        for (long k = i; k > 0; k /= 2) {
            own[__LINE__]++;
            sum += k;
        }
        sum += halved(i, own_inlined);
    }
    leaves(n);
    own[__LINE__]++;
    return sum;
}

static NOINLINE long attempt(long n)
{
    return setjmp(target) ? 1 : work(n);
}

int main(int argc, char **argv)
{
    long rounds = argc > 1 ? atol(argv[1]) : 20, sum = 0;
    for (long i = 0; i < rounds; i++)
        sum += attempt(i);
    for (int line = 0; line < 200; line++) {
        if (own[line])
            printf("own_lines.c:%d %ld\n", line, own[line]);
        if (own_inlined[line])
            printf("own_lines.h:%d %ld\n", line, own_inlined[line]);
    }
    printf("sum %ld\n", sum);
    return 0;
}
