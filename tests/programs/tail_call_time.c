/* Functions that leave sometimes by a tail call and sometimes by a return: to a function of the
 * program, to one that leaves in the same way, through a pointer, and to another library (usleep,
 * which sleeps for SLEEP_US). For those that cannot be timed up to the return it prints how often
 * each left by a tail call, as `tails NAME N`. For the others it prints the duration of their calls
 * and of the sleep in them, in ns, as `took NAME N` and `slept NAME N`. */
#include <stdio.h>
#include <time.h>
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

static long now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000000000 + at.tv_nsec;
}

int main(void)
{
    long sum = 0, took_direct = 0, took_chain = 0;
    for (long i = 0; i < ROUNDS; i++) {
        long start = now();
        sum += direct(i);
        long between = now();
        sum += chain(i);
        took_chain += now() - between;
        took_direct += between - start;
        sum += by_pointer(i);
        sum += library(i);
    }
    enum { SLEEP_NS = SLEEP_US * 1000 };
    printf("tails by_pointer %ld\ntails library %ld\n", tails_pointer, tails_library);
    printf("took chain %ld\nslept direct %ld\n", took_chain, tails_direct * SLEEP_NS);
    /* Each long call of chain contains one of direct. */
    printf("took direct %ld\nslept chain %ld\n", took_direct + took_chain, (tails_direct - ROUNDS * 2 / 3) * SLEEP_NS);
    return sum == 42;
}
