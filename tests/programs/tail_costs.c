/* Short functions that leave by tail calls. `chain` leaves to `wrapper`, which leaves to `inner`,
 * and `other` leaves to `apart`. `caller` calls all of them, and `inner` by an ordinary call, too.
 *
 * usage: tail_costs CALLS */
#include <stdint.h>
#include <stdlib.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))

static inline uint64_t work(uint64_t x, int steps)
{
    for (int i = 0; i < steps; i++)
        x = x * 6364136223846793005u + 1442695040888963407u;
    return x;
}

NOINLINE uint64_t inner(uint64_t x)
{
    return work(x, 24);
}

NOINLINE uint64_t apart(uint64_t x)
{
    return work(x, 24);
}

NOINLINE uint64_t wrapper(uint64_t x)
{
    return inner(x * 3 + 1);
}

NOINLINE uint64_t chain(uint64_t x)
{
    return wrapper(x * 5 + 1);
}

NOINLINE uint64_t other(uint64_t x)
{
    return apart(x * 7 + 1);
}

NOINLINE uint64_t caller(uint64_t x)
{
    x = chain(x) + 1;
    x = other(x) + 1;
    return inner(x) + 1;
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    uint64_t x = 1;
    for (int calls = atoi(argv[1]); calls > 0; calls--)
        x = caller(x);
    return x == 0;
}
