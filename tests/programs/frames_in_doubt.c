/* A module with more code without unwind entries, once stripped, than the runtime analyzes. `work`
 * is called through functions with frame pointers, whose frames contain return addresses of
 * finished calls. First prints the address of `further`. Each SIGUSR1 leads to one call, and after
 * SIGUSR2 `further` makes one, too. Ends on SIGTERM.
 */
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))
#define FRAME NOINLINE __attribute__((optimize("no-omit-frame-pointer"))) __attribute__((visibility("hidden")))

/* 72 MiB with a call at its end. */
__asm__(".text\n.fill 72 << 20, 1, 0x90\ncall work\nret\n");

static volatile sig_atomic_t told, is_further, is_over;

NOINLINE void work(void)
{
    __asm__ volatile("");
}

FRAME long leave_behind(long depth)
{
    volatile long all[3] = {depth};
    return depth ? leave_behind(depth - 1) + all[0] : 0;
}

/* This space is never written. */
#define LEVEL(name, next)                          \
    FRAME long name(long x)                        \
    {                                              \
        volatile long room[24];                    \
        room[23] = x;                              \
        return next(x + 1) + room[23];             \
    }

FRAME long further(long x)
{
    volatile long room[24];
    room[23] = x;
    work();
    return room[23];
}

FRAME long level_1(long x)
{
    volatile long room[24];
    room[23] = x;
    work();
    if (is_further)
        room[0] = further(x);
    return room[23];
}
LEVEL(level_2, level_1)
LEVEL(level_3, level_2)
LEVEL(level_4, level_3)
LEVEL(level_5, level_4)
LEVEL(level_6, level_5)

static void on_signal(int signal)
{
    if (signal == SIGTERM)
        is_over = 1;
    if (signal == SIGUSR2)
        is_further = 1;
    if (signal != SIGTERM)
        told++;
}

int main(void)
{
    long sum = 0;
    signal(SIGUSR1, on_signal);
    signal(SIGUSR2, on_signal);
    signal(SIGTERM, on_signal);
    printf("ready %p\n", (void *)further);
    fflush(stdout);
    for (int made = 0; !is_over; usleep(1000))
        for (; made < told; made++) {
            sum += leave_behind(40) + level_6(made);
            printf("made %d\n", made + 1);
            fflush(stdout);
        }
    printf("ok %ld\n", sum);
    return 0;
}
