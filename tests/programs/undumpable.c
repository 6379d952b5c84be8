/* Calls `step` all the time. From SIGUSR1 on only root may inspect it (prctl(2), PR_SET_DUMPABLE),
 * until SIGUSR2.
 *
 *     undumpable
 *
 * Ends on SIGTERM with one line: `ok calls N`. */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <time.h>

static atomic_int stop;
static atomic_int dumpable = 1;
static long calls;

__attribute__((noinline, noclone, noipa)) long step(long x)
{
    calls++;
    return x * 3 + 1;
}

static void on_signal(int number)
{
    if (number == SIGTERM)
        stop = 1;
    else
        dumpable = number == SIGUSR2;
}

int main(void)
{
    struct timespec pause = {0, 1000000};
    long x = 1;
    int now = 1;
    signal(SIGTERM, on_signal);
    signal(SIGUSR1, on_signal);
    signal(SIGUSR2, on_signal);
    puts("ready");
    fflush(stdout);
    while (!stop) {
        x = step(x);
        if (now != dumpable) {
            now = dumpable;
            prctl(PR_SET_DUMPABLE, now, 0, 0, 0);
            puts(now ? "dumpable" : "hidden");
            fflush(stdout);
        }
        nanosleep(&pause, NULL);
    }
    printf("ok calls %ld %s\n", calls, x ? "" : "zero");
    return 0;
}
