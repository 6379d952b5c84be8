/* The other half of names.c. */
#include <stdint.h>

uint64_t sometimes(uint64_t x);

__attribute__((noinline, noclone, noipa)) static uint64_t helper(uint64_t x)
{
    return x * 2 + 1;
}

uint64_t other(uint64_t x)
{
    return helper(x) + helper(x + 1) + 3;
}

uint64_t call_sometimes(uint64_t x)
{
    return sometimes(x) + 1;
}
