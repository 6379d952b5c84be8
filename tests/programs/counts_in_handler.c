/* A timer interrupts the loop of `counted` again and again. Its handler calls `counted`, too:
 * `counts_in_handler THOUSAND_TURNS [MICROSECONDS]`. Prints the number of turns, its own count. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>

static volatile long own, interruptions;

__attribute__((noinline, noclone, noipa)) static long counted(long n)
{
    long sum = 0;
    for (long i = 0; i < n; i++)
        sum += sum ^ i;
    return sum;
}

static void on_alarm(int signal)
{
    own += 7;
    interruptions += 1 + (counted(7) & (signal == 0));
}

int main(int argc, char **argv)
{
    long turns = argc > 1 ? atol(argv[1]) * 1000 : 1000;
    struct sigaction action = {.sa_handler = on_alarm};
    const long us = argc > 2 ? atol(argv[2]) : 50;
    struct itimerval often = {{0, us}, {0, us}};
    if (sigaction(SIGALRM, &action, NULL) || setitimer(ITIMER_REAL, &often, NULL))
        return 2;
    long sum = counted(turns);
    struct itimerval never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &never, NULL);
    if (sum == 42 || interruptions == 0)
        return 3;
    printf("%ld\n", own + turns);
    return 0;
}
