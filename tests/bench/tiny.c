/* A function of some 2 ns, called in a loop.
 *
 *     tiny CALLS
 *
 * Prints a sum, and its CPU time in nanoseconds on standard error. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

__attribute__((noinline, noclone)) uint64_t tiny(uint64_t x)
{
    x ^= x >> 3;
    __asm__ volatile("" : "+r"(x));
    return x * 5 + 1;
}

int main(int argc, char **argv)
{
    uint64_t sum = 1;
    for (uint64_t i = argc > 1 ? strtoull(argv[1], NULL, 10) : 1; i > 0; i--)
        sum = tiny(sum);
    printf("%llu\n", (unsigned long long)sum);
    struct timespec cpu;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    fprintf(stderr, "%lld\n", cpu.tv_sec * 1000000000ll + cpu.tv_nsec);
}
