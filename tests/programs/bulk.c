/* A module with more code without unwind entries, once stripped, than the runtime analyzes. `work`
 * is called through functions with and without frame pointers, by way of switches and pointers.
 * First prints the return addresses on the path, innermost first. On SIGUSR1 it makes 5000 more
 * calls. Ends on SIGTERM.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))
#define FRAME NOINLINE __attribute__((optimize("no-omit-frame-pointer")))
#define HIDDEN __attribute__((visibility("hidden")))
enum { DEPTH = 4 };

/* 72 MiB with a call at its end. */
__asm__(".text\n.fill 72 << 20, 1, 0x90\ncall work\nret\n");

HIDDEN void *returns[DEPTH];
HIDDEN volatile sig_atomic_t is_told;
#define NOTE(depth) (returns[depth] = __builtin_return_address(0))

NOINLINE void work(void)
{
    NOTE(0);
}

FRAME HIDDEN long with_frame(long x)
{
    volatile long all[8] = {x};
    NOTE(1);
    work();
    return all[0] + 1;
}

NOINLINE HIDDEN long with_switch(long x, long (*next)(long))
{
    volatile long all[24] = {x};
    NOTE(2);
    switch (x & 7) {
    case 0: return next(x) + all[0];
    case 1: all[1] = 5; return next(x + 1) * all[1];
    case 2: all[2] = 7; return next(x + 2) * 3 + all[2];
    case 3: return next(x * 3) - all[0];
    case 4: all[3] = x; return next(x) ^ all[3];
    default: return next(x - 1) + 9;
    }
}

FRAME HIDDEN long with_room(long x)
{
    volatile char *room = __builtin_alloca(16 * (x & 15) + 16);
    room[0] = 1;
    NOTE(3);
    return with_switch(x, with_frame) + room[0];
}

NOINLINE HIDDEN long plain(long x)
{
    return with_room(x + 1) * 2 + x;
}

static void tell(int signal)
{
    is_told = signal;
}

int main(void)
{
    long sum = plain(3);
    signal(SIGUSR1, tell);
    signal(SIGTERM, tell);
    printf("ready");
    for (int i = 0; i < DEPTH; i++)
        printf(" %p", returns[i]);
    printf("\n");
    fflush(stdout);
    for (long count = 1; count == 1; usleep(1000)) {
        count = is_told ? 5000 : 1;
        for (long i = 0; i < count; i++)
            sum += plain(3);
    }
    printf("made\n");
    fflush(stdout);
    while (is_told != SIGTERM)
        usleep(1000);
    printf("ok %ld\n", sum);
    return 0;
}
