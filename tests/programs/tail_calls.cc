/* A function that always leaves by a tail call, through another one that does, too, to one that
 * ends in every way.
 *
 * ends: it returns, throws, jumps out, or ends its thread. Prints `calls outer N`, the number that
 *     did not return, and the duration of those that did, in ns.
 * switches: sometimes the callee switches to another stack and back, or jumps out in an
 *     unrecognizable way; then the same call site calls another function. Prints the longest call
 *     of outer, in ns.
 * runs: two threads call repeatedly, until SIGTERM. Then prints the longest call, the sum of all
 *     calls in ns, and their number. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))
enum { RETURN, THROW, JUMP, END, RUN, SWITCH, UNSEEN };

static __thread jmp_buf back;
static ucontext_t first, other;
static void *unseen[5];
static volatile sig_atomic_t stop;

extern "C" {
NOINLINE long inner(long how, long x)
{
    if (how == THROW)
        throw x;
    if (how == JUMP)
        longjmp(back, 1);
    if (how == END)
        pthread_exit(NULL);
    if (how == SWITCH)
        swapcontext(&first, &other);
    if (how == UNSEEN)
        __builtin_longjmp(unseen, 1);
    for (volatile long i = 0; i < (how == RUN ? 200 : 20000); i++)
        ;
    return x + 1;
}

NOINLINE long middle(long how, long x)
{
    return inner(how, x * 2);
}

NOINLINE long outer(long how, long x)
{
    return middle(how, x + 1);
}
}

static long now()
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000000000 + at.tv_nsec;
}

NOINLINE static long call(long how, long x)
{
    if (setjmp(back))
        return 1;
    try {
        return outer(how, x);
    } catch (long thrown) {
        return thrown;
    }
}

static void *ends(void *)
{
    call(END, 1);
    return NULL;
}

static int all_ends()
{
    enum { ROUNDS = 120 };
    long calls = 0, left = 0, took = 0, sum = 0;
    for (long i = 0; i < ROUNDS; i++) {
        long how = i % 3;
        long start = now();
        sum += call(how, i);
        took += how == RETURN ? now() - start : 0;
        left += how != RETURN;
        calls++;
        if (i % 10 == 0) {
            pthread_t thread;
            pthread_create(&thread, NULL, ends, NULL);
            pthread_join(thread, NULL);
            calls++;
            left++;
        }
    }
    printf("calls outer %ld\nleft outer %ld\ntook outer %ld\nsum %ld\n", calls, left, took, sum);
    return 0;
}

extern "C" NOINLINE long elsewhere(long x)
{
    return x + 3;
}

static void comes_back()
{
    for (;;) {
        elsewhere(1);
        swapcontext(&other, &first);
    }
}

/* The calls of both have their return address in the same place. */
NOINLINE static long either(long how, long x)
{
    return (how < 0 ? elsewhere(x) : outer(how, x)) + 1;
}

NOINLINE static long come_back(long how, long x)
{
    if (__builtin_setjmp(unseen))
        return 1;
    return either(how, x) + 1;
}

static int switches()
{
    static char stack[1 << 16];
    static long longest, sum;
    getcontext(&other);
    other.uc_stack.ss_sp = stack;
    other.uc_stack.ss_size = sizeof stack;
    makecontext(&other, comes_back, 0);
    for (long i = 0; i < 40; i++) {
        long start = now();
        sum += come_back(i % 4 == 1 ? UNSEEN : i % 4 == 3 ? SWITCH : RETURN, i);
        long took = now() - start;
        if (took > longest)
            longest = took;
        usleep(3000);
        sum += come_back(-1, i);
    }
    printf("longest outer %ld\nsum %ld\n", longest, sum);
    return 0;
}

struct Told {
    long calls, took, longest;
};

static void *runs(void *told)
{
    Told *mine = (Told *)told;
    while (!stop) {
        long start = now();
        call(RUN, mine->calls);
        long took = now() - start;
        mine->calls++;
        mine->took += took;
        if (took > mine->longest)
            mine->longest = took;
    }
    return NULL;
}

static void on_term(int)
{
    stop = 1;
}

static int run()
{
    Told told[2] = {};
    pthread_t thread;
    signal(SIGTERM, on_term);
    pthread_create(&thread, NULL, runs, &told[1]);
    puts("ready");
    fflush(stdout);
    runs(&told[0]);
    pthread_join(thread, NULL);
    long longest = told[0].longest > told[1].longest ? told[0].longest : told[1].longest;
    printf("longest %ld took %ld calls %ld\n", longest, told[0].took + told[1].took, told[0].calls + told[1].calls);
    return 0;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    return strcmp(what, "runs") == 0 ? run() : strcmp(what, "switches") == 0 ? switches() : all_ends();
}
