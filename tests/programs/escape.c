/* Two functions whose names a test replaces by text that no terminal should obey.
 *
 *     escape ANYTHING
 *
 * Ends on SIGTERM with one line: `ok calls N`. */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))

static atomic_int stop;
static long calls;

NOINLINE long evil_called(long x)
{
    calls++;
    return x * 3 + 1;
}

NOINLINE long evil_caller(long x)
{
    return evil_called(x) ^ 5;
}

static void on_term(int number)
{
    (void)number;
    stop = 1;
}

int main(void)
{
    struct timespec pause = {0, 1000000};
    long x = 1;
    signal(SIGTERM, on_term);
    puts("ready");
    fflush(stdout);
    while (!stop) {
        x = evil_caller(x);
        nanosleep(&pause, NULL);
    }
    printf("ok calls %ld %s\n", calls, x ? "" : "zero");
    return 0;
}
