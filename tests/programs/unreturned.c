/* Functions that are left in other ways than by returning once: `unreturned WHAT`.
 *
 * setjmp: a probed function to which setjmp returns again, twice, from functions that it has
 *     called; and the same with the signal mask, out of a handler.
 * vfork: children that make calls before they end, and before they execute another program. Those
 *     calls do not belong to the process.
 * exit: calls that end by exit, of a function without a return and of one with a return.
 * quick: the same by _exit.
 * loop: they loop until a signal's handler jumps out of them.
 * killed: they loop until a signal ends the program. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))

static volatile long ticks, leaves, returners;
static jmp_buf back;
static sigjmp_buf back_from_signal;
static volatile int sink;

NOINLINE long tick(long x)
{
    ticks++;
    return x * 3 + 1;
}

/* Does not return if x is positive. */
NOINLINE long leaves_by_jump(long x)
{
    leaves++;
    tick(x);
    if (x > 0)
        longjmp(back, (int)x);
    return x;
}

/* Entered once and returned from once, despite setjmp. */
NOINLINE long returns_once(long x)
{
    volatile long left = x;
    returners++;
    long sum = setjmp(back);
    tick(sum);
    if (left-- > 0)
        leaves_by_jump(left + 1);
    return sum + tick(left);
}

static void set_jumps(void)
{
    long sum = 0;
    for (int i = 0; i < 500; i++)
        sum += returns_once(i % 4);
    printf("calls returns_once %ld\ncalls leaves_by_jump %ld\n", returners, leaves);
    printf("calls tick %ld\nsum %ld\n", ticks, sum);
}

NOINLINE static int in_child(int i, char *program)
{
    pid_t child = vfork();
    if (child == 0) {
        for (int k = 0; k < i % 5; k++)
            tick(k);
        ticks -= i % 5;
        if (i % 2)
            execl(program, program, "nothing", (char *)NULL);
        _exit(7);
    }
    int status = 0;
    waitpid(child, &status, 0);
    tick(i);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void vforks(char *program)
{
    int sum = 0;
    for (int i = 0; i < 200; i++)
        sum += in_child(i, program);
    printf("calls tick %ld\ncalls vfork 200\nsum %d\n", ticks, sum);
}

NOINLINE void never_returns(const char *what)
{
    tick(1);
    fflush(stdout);
    if (strcmp(what, "exit") == 0)
        exit(5);
    if (strcmp(what, "quick") == 0)
        _exit(6);
    ualarm(50000, 0);
    for (;;)
        sink++;
}

/* Returns unless it is called like the other one. */
NOINLINE long might_return(const char *what)
{
    if (what)
        never_returns(what);
    return tick(4);
}

static void on_alarm(int signal)
{
    tick(signal);
    siglongjmp(back_from_signal, 1);
}

static void at_exit(void)
{
    tick(2);
    puts("at exit");
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    tick(0);
    if (strcmp(what, "nothing") == 0)
        return 9;
    if (strcmp(what, "setjmp") == 0) {
        set_jumps();
    } else if (strcmp(what, "vfork") == 0) {
        vforks(argv[0]);
    } else if (strcmp(what, "loop") == 0) {
        signal(SIGALRM, on_alarm);
        for (volatile int i = 0; i < 2; i++)
            if (sigsetjmp(back_from_signal, 1) == 0)
                might_return(what);
        might_return(NULL);
        printf("calls never_returns 2\ncalls might_return 3\ncalls tick %ld\n", ticks);
    } else {
        puts("calls never_returns 1\ncalls might_return 2");
        printf("calls tick %d\n", strcmp(what, "exit") == 0 ? 4 : 3);
        atexit(at_exit);
        might_return(NULL);
        might_return(what);
    }
    return 0;
}
