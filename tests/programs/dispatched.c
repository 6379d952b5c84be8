/* A program whose system calls are turned into SIGSYS while it computes, as Wine does for Windows
 * programs (prctl(2), PR_SET_SYSCALL_USER_DISPATCH).
 *
 *     dispatched
 *
 * Calls `work` in a loop. Ends on SIGTERM with `ok calls N`, or `wrong WHY` if there was a call
 * that it did not make. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { SET_SYSCALL_USER_DISPATCH = 59, ALLOW = 0, BLOCK = 1 };

static volatile char selector = ALLOW;
static volatile sig_atomic_t stop, handed_back;

__attribute__((noinline, noclone, noipa)) uint64_t work(uint64_t x)
{
    return (x ^ x >> 9) * 5 + 1;
}

static void on_term(int signal)
{
    (void)signal;
    /* The return from this handler is a system call, too. */
    selector = ALLOW;
    stop = 1;
}

static void on_call(int signal)
{
    (void)signal;
    selector = ALLOW;
    handed_back++;
}

int main(void)
{
    signal(SIGTERM, on_term);
    signal(SIGSYS, on_call);
    puts("ready");
    fflush(stdout);
    if (prctl(SET_SYSCALL_USER_DISPATCH, 1, 0, 0, &selector) != 0) {
        puts("wrong: no dispatch");
        return 1;
    }
    uint64_t x = 1, calls = 0;
    while (!stop) {
        selector = BLOCK;
        for (int i = 0; i < 100000 && !stop; i++, calls++)
            x = work(x);
        selector = ALLOW;
        struct timespec pause = {0, 100000};
        nanosleep(&pause, NULL);
    }
    if (handed_back)
        printf("wrong: %d calls that it did not make\n", (int)handed_back);
    else
        printf("ok calls %lu %d\n", (unsigned long)calls, x == 0);
    return 0;
}
