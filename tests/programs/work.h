/* For programs that call one function, `work`, until SIGTERM, whose handler `end` sets `ends`. */
#ifndef WORK_H
#define WORK_H

#include <signal.h>

static volatile sig_atomic_t ends;

__attribute__((noinline, noclone, noipa)) long work(long x)
{
    return x * 3 + 1;
}

static __attribute__((unused)) void end(int signal)
{
    (void)signal;
    ends = 1;
}

#endif
