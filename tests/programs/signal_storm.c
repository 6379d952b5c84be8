/* Calls `tick` without a pause for a second while a timer's signal, 10,000 times a second, has its
 * handler call `tick` as well: `signal_storm WHERE`, on the same stack (`same`), on an alternate one
 * (`alternate`), on one amid the frames of the same stack (`inner`), or on the same one and then jumps
 * out (`jump`). `nested` has a second timer that interrupts the handler on the alternate stack as well,
 * and jumps out of both. Prints its own number of calls. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))
enum { STACK = 65536, NESTED = 2 };

static volatile long calls, in_handler, jumped;
static volatile sig_atomic_t wrong, jumps, may_jump;
static sigjmp_buf back;

/* Counted by one instruction: no handler comes between its parts. */
NOINLINE long tick(long x)
{
    __asm__ volatile("incq %0" : "+m"(calls));
    return x * 3 + 1;
}
NOINLINE static long nested(long x) { return tick(x) + 1; }
NOINLINE static long deep(long x) { return nested(tick(x)) + 1; }

/* Lets the next signal in before it jumps. */
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
    if (jumps != NESTED)
        jump_back();
}

static void on_second(int signal)
{
    long before = calls;
    tick(signal);
    in_handler += calls - before;
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
    } while (now.tv_sec - start.tv_sec + (now.tv_nsec - start.tv_nsec) / 1e9 < 1);
}

/* A signal every `interval` nanoseconds. */
static timer_t start(int signal, void (*handler)(int), int flags, long interval)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART | flags};
    sigaction(signal, &action, NULL);
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = signal};
    struct itimerspec each = {.it_interval = {0, interval}, .it_value = {0, interval}};
    timer_t timer;
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) || timer_settime(timer, 0, &each, NULL))
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
    timer_t first = start(SIGRTMIN, on_timer, flags, 100000), second = NULL;
    if (jumps == NESTED)
        second = start(SIGRTMIN + 1, on_second, flags, 130000);
    rounds();
    timer_delete(first);
    if (jumps == NESTED)
        timer_delete(second);
    printf("calls tick %ld\nin_handler %ld\njumps %ld\n", calls, in_handler, jumped);
    puts(wrong ? "wrong" : "ok");
    return wrong;
}
