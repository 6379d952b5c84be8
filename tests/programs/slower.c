/* Calls `rest` on two paths, through `left` and through `right`.
 *
 *     slower ROUNDS LEFT RIGHT
 *
 * In each round it rests for LEFT us on one path and for RIGHT us on the other. Ends with `ok`. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))

static volatile long sink;

NOINLINE void rest(long us)
{
    struct timespec time = {us / 1000000, us % 1000000 * 1000};
    if (us > 0)
        nanosleep(&time, NULL);
    sink++;
}

NOINLINE void left(long us)
{
    rest(us);
    sink++;
}

NOINLINE void right(long us)
{
    rest(us);
    sink--;
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    for (long round = atol(argv[1]); round > 0; round--) {
        left(atol(argv[2]));
        right(atol(argv[3]));
    }
    puts("ok");
    return 0;
}
