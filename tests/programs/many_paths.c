/* Repeatedly calls `leaf` on 2^LEVELS paths, one after another.
 *
 *     many_paths LEVELS [ROUNDS] [PAUSE]
 *
 * Each level has two call sites. After every 64 calls it rests for PAUSE us (1000). Without ROUNDS,
 * or with 0, it continues until SIGTERM. Ends with one line, `ok calls N`. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))

static volatile long sink;
static unsigned long calls;

NOINLINE void leaf(unsigned bits)
{
    calls++;
    sink += bits;
}

NOINLINE void other(unsigned bits)
{
    sink -= bits;
}

NOINLINE void walk(int level, unsigned bits)
{
    if (level == 0) {
        leaf(bits);
        return;
    }
    if (bits & 1) {
        walk(level - 1, bits >> 1);
        sink++;
    } else {
        walk(level - 1, bits >> 1);
        sink--;
    }
}

static volatile sig_atomic_t is_asked_to_end;

static void ask(int signal)
{
    is_asked_to_end = signal;
}

int main(int argc, char **argv)
{
    int levels = argc > 1 ? atoi(argv[1]) : 16;
    long rounds = argc > 2 ? atol(argv[2]) : 0;
    long pause = argc > 3 ? atol(argv[3]) : 1000;
    signal(SIGTERM, ask);
    puts("ready");
    fflush(stdout);
    for (long round = 0; rounds == 0 || round < rounds; round++) {
        for (unsigned path = 0; path < 1u << levels && !is_asked_to_end; path++) {
            walk(levels, path);
            if (path % 64 == 0) {
                struct timespec time = {0, pause * 1000};
                nanosleep(&time, NULL);
                other(path);
            }
        }
        if (is_asked_to_end)
            break;
    }
    printf("ok calls %lu\n", calls);
}
