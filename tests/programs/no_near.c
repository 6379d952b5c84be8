/* A program in which all memory within 2 GiB is occupied.
 *
 *     no_near [HOLE]
 *
 * With an argument, that many KiB are free in one place 1 GiB before the program; their address is
 * printed on standard error. Prints `ready`, waits for SIGUSR1, calls `work`, prints `calls work N`
 * and `ok SUM`; ends on SIGTERM. */
#include "gate.h"

__attribute__((noinline, noclone, noipa)) uint64_t work(uint64_t x) { return (x ^ x >> 9) * 7; }

/* Occupies the free parts of a range. */
static void occupy(uintptr_t from, uintptr_t until)
{
    for (uintptr_t at = from & ~4095ul, step = 1 << 26; at < until; at += step)
        for (uintptr_t piece = at, len = step; piece < at + step; piece += len) {
            void *wanted = (void *)piece;
            int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
            while (mmap(wanted, len, PROT_NONE, flags, -1, 0) == MAP_FAILED && len > 4096)
                len /= 2;
        }
}

int main(int argc, char **argv)
{
    extern const char __executable_start[], _end[];
    uintptr_t start = (uintptr_t)__executable_start & ~4095ul, end = (uintptr_t)_end;
    uintptr_t reach = (2ul << 30) + (64ul << 20);
    await_nothing_yet();
    occupy(start - reach, start);
    occupy(end, end + reach);
    if (argc > 1) {
        char *hole = (char *)(start - (1ul << 30));
        size_t len = (size_t)atoi(argv[1]) * 1024;
        munmap(hole, len);
        fprintf(stderr, "hole %p %p\n", hole, hole + len);
    }
    say("ready");
    await_test(SIGUSR1);
    uint64_t sum = 0;
    for (uint64_t x = 0; x < 5000; x++)
        sum = sum * 31 + work(x);
    printf("calls work 5000\nok %llu\n", (unsigned long long)sum);
    fflush(stdout);
    await_test(SIGTERM);
    return 0;
}
