// A program of many small functions, called on many paths: a binary tree of template instances.
//
//     templates ROUNDS
//
// A round makes 2^17 - 1 calls, each on a path of its own. Prints a sum, and its CPU time in
// nanoseconds on standard error.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>

template <int Level, int Side> struct Node {
    __attribute__((noinline)) static uint64_t visit(uint64_t x)
    {
        x = x * 6364136223846793005u + Level;
        return Node<Level - 1, 0>::visit(x) ^ Node<Level - 1, 1>::visit(x >> 1);
    }
};

template <int Side> struct Node<0, Side> {
    __attribute__((noinline)) static uint64_t visit(uint64_t x)
    {
        for (int i = 0; i < 4; i++) {
            x ^= x >> 12;
            x *= 2685821657736338717u + Side;
            __asm__ volatile("" : "+r"(x));
        }
        return x;
    }
};

int main(int argc, char **argv)
{
    uint64_t sum = 0;
    for (long i = argc > 1 ? atol(argv[1]) : 1; i > 0; i--)
        sum += Node<16, 0>::visit(i);
    printf("%llu\n", (unsigned long long)sum);
    struct timespec cpu;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    fprintf(stderr, "%lld\n", cpu.tv_sec * 1000000000ll + cpu.tv_nsec);
}
