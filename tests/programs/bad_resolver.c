/* An indirect function that has never been called. Its resolver cannot be called any more: it
 * faults. The program's handler of SIGSEGV must stay installed.
 *
 *     bad_resolver
 *
 * Ends on SIGTERM with `ok`, or `wrong WHY`. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))

static volatile sig_atomic_t stop, faults;
static int *volatile nowhere;

NOINLINE long plain(long x)
{
    return x + 1;
}

static long answer(long x)
{
    return x * 2;
}

/* Reached only if the loader has not called the resolver. */
static long (*choose(void))(long)
{
    *nowhere = 1;
    return answer;
}

long never_called(long x) __attribute__((ifunc("choose")));

static void on_term(int signal)
{
    (void)signal;
    stop = 1;
}

static void on_fault(int signal)
{
    faults++;
    (void)signal;
}

int main(void)
{
    struct sigaction fault = {.sa_handler = on_fault};
    sigaction(SIGSEGV, &fault, NULL);
    signal(SIGTERM, on_term);
    puts("ready");
    fflush(stdout);
    long x = 0;
    while (!stop) {
        x = plain(x) & 0xff;
        struct timespec pause = {0, 100000};
        nanosleep(&pause, NULL);
    }
    struct sigaction now;
    sigaction(SIGSEGV, NULL, &now);
    if (faults != 0)
        printf("wrong: %d faults\n", (int)faults);
    else if (now.sa_handler != on_fault)
        puts("wrong: the handler is gone");
    else
        puts("ok");
    return 0;
}
