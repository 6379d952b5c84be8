/* Calls `work` from two functions that are not exported, prints the number of calls, and runs for a
 * while. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))

static long calls;

NOINLINE static long work(long n)
{
    calls++;
    return n * 3 + 1;
}

NOINLINE static long first_caller(long n) { return work(n) + 1; }

NOINLINE static long second_caller(long n) { return work(n) + 2; }

int main(int argc, char **argv)
{
    long rounds = argc > 1 ? atol(argv[1]) : 100, sum = 0;
    for (long n = 0; n < rounds; n++) {
        sum += first_caller(n) + second_caller(n) + second_caller(n);
        usleep(1000);
    }
    printf("calls work %ld\n", calls);
    return sum == 0;
}
