/* Statements whose executions the program knows. Each marked line is a single instruction.
 *
 *     lines CALLS
 *
 * Waits for SIGUSR1 if CALLS is followed by another argument. Prints `ok`. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))

static inline __attribute__((always_inline)) void step(long n)
{
    __asm__("" : "+r"(n)); /* keeps the loop from being unrolled */
    for (long i = 0; i < n; i++)
        __asm__ volatile("nop"); /* step: once for each step */
}

NOINLINE void thrice(void)
{
    step(3);
}

NOINLINE void five(void)
{
    step(5);
}

NOINLINE void choose(long i)
{
    if (i % 4 == 0)
        __asm__ volatile("nop"); /* fourth: in each fourth call */
    else
        __asm__ volatile("nop" ::: "memory"); /* other: in all other calls */
}

int main(int argc, char **argv)
{
    long calls = argc > 1 ? atol(argv[1]) : 0;
    if (argc > 2) {
        sigset_t set;
        int signal;
        sigemptyset(&set);
        sigaddset(&set, SIGUSR1);
        sigprocmask(SIG_BLOCK, &set, NULL);
        puts("ready");
        fflush(stdout);
        sigwait(&set, &signal);
    }
    for (long i = 0; i < calls; i++) {
        thrice();
        five();
        choose(i);
    }
    puts("ok");
    return 0;
}
