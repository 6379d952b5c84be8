/* A thread that shares the FS base of the first one, as clone(2) without CLONE_SETTLS creates it.
 * Both call `work`. Ends on SIGTERM with `ok`. */
#define _GNU_SOURCE
#include "work.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { STACK = 1 << 16 };

static char stack[STACK] __attribute__((aligned(64)));

static void call(void)
{
    static volatile long x = 5;
    if (work(x) != 16)
        abort();
}

static int second(void *unused)
{
    (void)unused;
    for (;;)
        call();
    return 0;
}

int main(void)
{
    const int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
    signal(SIGTERM, end);
    if (clone(second, stack + STACK, flags, NULL) < 0)
        return 2;
    puts("ready");
    fflush(stdout);
    while (!ends) {
        call();
        usleep(1000);
    }
    puts("ok");
    fflush(stdout);
    _exit(0);
}
