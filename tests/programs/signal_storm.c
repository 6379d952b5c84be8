/* Calls `tick` without a pause for a second, and until a timer's signal handler has called it
 * often. The signal arrives 100 us after the handler has ended: at fixed times, a machine on which
 * the handler takes that long would run nothing else.
 *
 * `signal_storm WHERE`: the handler runs on the same stack (`same`), on an alternate one
 * (`alternate`), on one between frames of the same stack (`inner`), or on the same one and then
 * jumps out (`jump`). `nested` has a second timer that also interrupts the handler on the alternate
 * stack, and jumps out of both. Prints its own number of calls. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))
enum { STACK = 65536, NESTED = 2, OFTEN = 1000 };

static volatile long calls, in_handler, jumped;
static volatile sig_atomic_t wrong, jumps, may_jump;
static sigjmp_buf back;

/* Counted with one instruction, so that no handler interrupts the count. */
NOINLINE long tick(long x)
{
    __asm__ volatile("incq %0" : "+m"(calls));
    return x * 3 + 1;
}
NOINLINE static long nested(long x) { return tick(x) + 1; }
NOINLINE static long deep(long x) { return nested(tick(x)) + 1; }

/* Each signal's timer, and the time between its handler and the next signal. */
static timer_t first, second;
enum { FIRST = 100000, SECOND = 130000 };

static void start(timer_t timer, long nanoseconds)
{
    struct itimerspec once = {.it_value = {0, nanoseconds}};
    timer_settime(timer, 0, &once, NULL);
}

/* Unblocks the signals before it jumps. */
static void jump_back(void)
{
    int jump = may_jump;
    may_jump = 0;
    if (jump) {
        jumped++;
        siglongjmp(back, 1);
    }
}

static void on_timer(int signal)
{
    long before = calls;
    if (deep(signal) != (signal * 3 + 1) * 3 + 3)
        wrong = 1;
    in_handler += calls - before;
    start(first, FIRST);
    if (jumps != NESTED)
        jump_back();
}

static void on_second(int signal)
{
    long before = calls;
    tick(signal);
    in_handler += calls - before;
    start(second, SECOND);
    jump_back();
}

NOINLINE static void rounds(void)
{
    struct timespec now, start;
    clock_gettime(CLOCK_MONOTONIC, &start);
    volatile long pause = 0;
    do {
        for (volatile int i = 0; i < 1000; i++) {
            if (jumps && sigsetjmp(back, 1))
                continue;
            may_jump = jumps != 0;
            long x = i, got = jumps ? tick(tick(x)) + 2 : deep(x);
            may_jump = 0;
            if (got != (x * 3 + 1) * 3 + 3)
                wrong = 1;
            for (int k = 0; k < 50; k++)
                pause = pause + k;
        }
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (in_handler <= OFTEN || now.tv_sec - start.tv_sec + (now.tv_nsec - start.tv_nsec) / 1e9 < 1);
}

/* A timer for this signal. */
static timer_t timer_of(int signal, void (*handler)(int), int flags)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART | flags};
    sigaction(signal, &action, NULL);
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = signal};
    timer_t timer;
    if (timer_create(CLOCK_MONOTONIC, &event, &timer))
        exit(2);
    return timer;
}

int main(int argc, char **argv)
{
    const char *where = argc > 1 ? argv[1] : "";
    char inner[STACK];
    int is_inner = strcmp(where, "inner") == 0;
    jumps = strcmp(where, "jump") == 0 ? 1 : strcmp(where, "nested") == 0 ? NESTED : 0;
    int is_alternate = is_inner || jumps == NESTED || strcmp(where, "alternate") == 0;
    stack_t stack = {.ss_sp = is_inner ? inner : malloc(STACK), .ss_size = STACK};
    sigaltstack(&stack, NULL);
    int flags = is_alternate ? SA_ONSTACK : 0;
    first = timer_of(SIGRTMIN, on_timer, flags);
    second = timer_of(SIGRTMIN + 1, on_second, flags);
    start(first, FIRST);
    if (jumps == NESTED)
        start(second, SECOND);
    rounds();
    timer_delete(first);
    timer_delete(second);
    printf("calls tick %ld\nin_handler %ld\njumps %ld\n", calls, in_handler, jumped);
    puts(wrong ? "wrong" : "ok");
    return wrong;
}
