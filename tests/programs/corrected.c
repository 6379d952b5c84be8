/* `all` calls `outer`, which calls `inner`, and each does some work. The work takes longer than the
 * excess of the correction for the calls inside, because a negative time would be shown as 0.
 *
 * usage: corrected CALLS INNER
 *
 * Prints `all N ns`, the time of `all`. */
#include "timed.h"

#include <stdio.h>
#include <stdlib.h>

NOINLINE uint64_t inner(uint64_t x)
{
    return work(x, 60);
}

NOINLINE uint64_t outer(uint64_t x, int calls)
{
    for (int i = 0; i < calls; i++)
        x = inner(x);
    return work(x, 150);
}

NOINLINE uint64_t all(uint64_t x, int calls, int each)
{
    for (int i = 0; i < calls; i++)
        x = work(outer(x, each), 60);
    return x + 1;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    int calls = atoi(argv[1]), each = atoi(argv[2]);
    uint64_t x = 1;
    int64_t begin = now(CLOCK_MONOTONIC);
    x = all(x, calls, each);
    int64_t end = now(CLOCK_MONOTONIC);
    printf("all %ld ns\n", (long)(end - begin));
    return x == 0;
}
