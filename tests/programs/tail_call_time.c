/* Functions that leave by a tail call at times, and at times by a return: to a function of the program, to one
 * that leaves so itself, through a pointer, and to another library (usleep, which sleeps for SLEEP_US). Prints how often each
 * left by a tail call, as `tails NAME N`. */
#include <stdio.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))
enum { ROUNDS = 60, SLEEP_US = 500 };

static long tails_direct, tails_chain, tails_pointer, tails_library;

NOINLINE long slow(long x)
{
    usleep(SLEEP_US);
    return x + 1;
}

NOINLINE long direct(long x)
{
    if (x % 3 == 0)
        return x;
    tails_direct++;
    return slow(x * 2);
}

NOINLINE long chain(long x)
{
    if (x % 4 == 0)
        return -x;
    tails_chain++;
    return direct(x + 1);
}

long (*volatile pointer)(long) = slow;
NOINLINE long by_pointer(long x)
{
    if (x % 5 == 0)
        return x + 7;
    tails_pointer++;
    return pointer(x * 3);
}

NOINLINE int library(long x)
{
    if (x % 6 == 0)
        return 0;
    tails_library++;
    return usleep(SLEEP_US);
}

int main(void)
{
    long sum = 0;
    for (long i = 0; i < ROUNDS; i++) {
        sum += direct(i);
        sum += chain(i);
        sum += by_pointer(i);
        sum += library(i);
    }
    printf("tails direct %ld\ntails chain %ld\ntails by_pointer %ld\ntails library %ld\n", tails_direct,
           tails_chain, tails_pointer, tails_library);
    return sum == 42;
}
