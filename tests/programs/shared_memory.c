/* A process with a child that shares its memory but is not one of its threads (clone(2) with only
 * CLONE_VM). Both call `work`, until SIGUSR1 ends the child.
 *
 *     shared_memory
 *
 * Ends on SIGTERM with `ok calls N`, or `wrong WHY`. */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STACK = 1 << 16 };

static volatile sig_atomic_t stop, alone;
static char stack[STACK] __attribute__((aligned(64)));

__attribute__((noinline, noclone, noipa)) uint64_t work(uint64_t x)
{
    return (x ^ x >> 9) * 5 + 1;
}

static int agrees(uint64_t x)
{
    return work(x) == (x ^ x >> 9) * 5 + 1;
}

static int child(void *unused)
{
    (void)unused;
    for (uint64_t x = 1; !alone; x += 3)
        if (!agrees(x))
            return 1;
    return 0;
}

static void on_term(int signal)
{
    (void)signal;
    stop = 1;
}

static void on_usr1(int signal)
{
    (void)signal;
    alone = 1;
}

int main(void)
{
    signal(SIGTERM, on_term);
    signal(SIGUSR1, on_usr1);
    pid_t other = clone(child, stack + STACK, CLONE_VM | SIGCHLD, NULL);
    if (other < 0)
        return 3;
    puts("ready");
    fflush(stdout);
    uint64_t calls = 0;
    int status = -1, is_told = 0;
    for (uint64_t x = 1; !stop; x += 7, calls++) {
        if (!agrees(x)) {
            puts("wrong: in the parent");
            return 1;
        }
        if (alone && !is_told && waitpid(other, &status, 0) == other) {
            is_told = 1;
            puts("alone");
            fflush(stdout);
        }
    }
    alone = 1;
    if (!is_told && waitpid(other, &status, 0) != other)
        return 3;
    if (status != 0)
        printf("wrong: in the child, %x\n", status);
    else
        printf("ok calls %lu\n", (unsigned long)calls);
    return 0;
}
