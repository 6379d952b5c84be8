/* A signal handler that forks, in the middle of calls of `work`. The child returns from it and
 * continues. Prints how many children failed. */
#include <signal.h>
#include <stdio.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))
enum { FORKS = 40 };

static volatile long calls;
static volatile sig_atomic_t is_child, forks;

NOINLINE long work(long x)
{
    calls++;
    return x + 1;
}

NOINLINE long descend(long x)
{
    return x ? descend(x - 1) + work(x) : 1;
}

static void every(long microseconds)
{
    struct itimerval timer = {{0, microseconds}, {0, microseconds}};
    setitimer(ITIMER_REAL, &timer, NULL);
}

static void on_alarm(int signal)
{
    (void)signal;
    if (is_child)
        return;
    if (fork() == 0) {
        is_child = 1;
        every(0);
    } else {
        forks++;
    }
}

int main(void)
{
    long sum = 0;
    int bad = 0, status;
    signal(SIGALRM, on_alarm);
    every(30000);
    for (long i = 0; forks < FORKS; i++) {
        sum += descend(i % 12);
        if (is_child) {
            for (long k = 0; k < 2000; k++)
                sum += descend(k % 9);
            _exit(sum == 0);
        }
    }
    every(0);
    while (wait(&status) > 0)
        bad += status != 0;
    printf("bad %d\n", bad);
    return bad != 0;
}
