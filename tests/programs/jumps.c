/* Jumps that end calls: `jumps WHAT`, in four threads that live until all are finished, and whose
 * last call ends by one.
 *
 * calls: out of nested calls, by each of the functions that jump, each to one of two places.
 * handler: out of a handler on the same stack and its calls; alternate: out of one on another
 *     stack.
 * stacks: from one stack of makecontext(3) to another one, where calls continue: none ends. */
#define _GNU_SOURCE
#include "ends.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#ifdef __GLIBC__
#include <ucontext.h>
#endif

enum { THREADS = 4, ROUNDS = 200, STACK = 65536 };

struct place {
    jmp_buf plain, quick;
    sigjmp_buf with_mask;
    /* `is_near` selects near_place as the target of the jump, and `which` the kind of buffer. */
    long is_near, which, sum;
};

static __thread struct place far_place, near_place;
static long is_signal;

PROBED long cleans(long x)
{
    enter(CLEANS);
    return leave(CLEANS, x * 3 + 1);
}

static void jump(long x)
{
    struct place *to = far_place.is_near ? &near_place : &far_place;
    switch (far_place.which) {
    case 0:
        longjmp(to->plain, (int)x + 1);
    case 1:
        _longjmp(to->quick, (int)x + 1);
    default:
        siglongjmp(to->with_mask, (int)x + 1);
    }
}

PROBED long leaves(long x)
{
    enter(LEAVES);
    cleans(x);
    if (x % 7 && is_signal)
        pthread_kill(pthread_self(), SIGUSR1);
    else if (x % 7)
        jump(x);
    return leave(LEAVES, x + 1);
}

PROBED long inner(long x)
{
    enter(INNER);
    return leave(INNER, leaves(x) + 1);
}

/* Sets all three kinds of buffer. The value is that of the one through which a jump returns. */
#define SET(place)                                                                                  \
    (far_place.which == 0   ? setjmp((place).plain)                                                 \
     : far_place.which == 1 ? _setjmp((place).quick)                                                \
                            : sigsetjmp((place).with_mask, 1))

PROBED long middle(long x)
{
    enter(MIDDLE);
    volatile long left = x % 4, kept = x;
    int came = SET(near_place);
    far_place.sum += came;
    if (came == 0 || left-- > 0)
        far_place.sum += inner(kept + left);
    return leave(MIDDLE, came);
}

PROBED long outer(long x)
{
    enter(OUTER);
    far_place.is_near = x % 2;
    return leave(OUTER, middle(x) + 1);
}

PROBED long handler(long x)
{
    enter(HANDLER);
    long got = cleans(x);
    if (got)
        jump(got);
    return leave(HANDLER, got);
}

static void on_signal(int signal) { far_place.sum += handler(signal); }

static pthread_barrier_t all_done;

static void *rounds(void *argument)
{
    char *stack = malloc(STACK);
    stack_t alternate = {.ss_sp = stack, .ss_size = STACK};
    sigaltstack(&alternate, NULL);
    for (volatile long x = 1; x <= ROUNDS; x++) {
        far_place.which = x / 4 % 3;
        int came = SET(far_place);
        far_place.sum = far_place.sum * 3 + came;
        if (came == 0)
            far_place.sum += outer(x);
    }
    pthread_barrier_wait(&all_done);
    alternate.ss_flags = SS_DISABLE;
    sigaltstack(&alternate, NULL);
    free(stack);
    *(long *)argument = far_place.sum;
    return NULL;
}

/* musl does not have makecontext(3). */
#ifdef __GLIBC__
static jmp_buf fibers[2];
static long left[2];

/* Switches in the middle of each call. */
PROBED long switches(long self)
{
    enter(SWITCHES);
    cleans(self);
    if (left[!self] && _setjmp(fibers[self]) == 0)
        _longjmp(fibers[!self], 1);
    return leave(SWITCHES, cleans(self));
}

static ucontext_t from, contexts[2];

static void fiber(int self)
{
    if (_setjmp(fibers[self]) == 0)
        swapcontext(&contexts[self], &from);
    while (left[self]) {
        far_place.sum = far_place.sum * 5 + switches(self);
        left[self]--;
    }
    if (left[!self])
        _longjmp(fibers[!self], 1);
    setcontext(&from);
}

/* One of the stacks is between the frames of the thread's own stack. */
static void *two_stacks(void *argument)
{
    char here[STACK], *there = malloc(STACK);
    for (int i = 0; i < 2; i++) {
        left[i] = ROUNDS + i;
        getcontext(&contexts[i]);
        contexts[i].uc_stack.ss_sp = i ? there : here;
        contexts[i].uc_stack.ss_size = STACK;
        makecontext(&contexts[i], (void (*)(void))fiber, 1, i);
        swapcontext(&from, &contexts[i]);
    }
    volatile int has_begun = 0;
    getcontext(&from);
    if (!has_begun) {
        has_begun = 1;
        _longjmp(fibers[0], 1);
    }
    free(there);
    *(long *)argument = far_place.sum;
    return NULL;
}
#else
#define two_stacks rounds
#endif

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    int is_alternate = strcmp(what, "alternate") == 0, is_stacks = strcmp(what, "stacks") == 0;
    is_signal = is_alternate || strcmp(what, "handler") == 0;
    int flags = SA_NODEFER | (is_alternate ? SA_ONSTACK : 0);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = flags};
    sigaction(SIGUSR1, &action, NULL);
    int threads = is_stacks ? 1 : THREADS;
    pthread_barrier_init(&all_done, NULL, (unsigned)threads);
    pthread_t ids[THREADS];
    long sums[THREADS], sum = 0;
    for (int i = 0; i < threads; i++)
        pthread_create(&ids[i], NULL, is_stacks ? two_stacks : rounds, &sums[i]);
    for (int i = 0; i < threads; i++) {
        pthread_join(ids[i], NULL);
        sum = sum * 5 + sums[i];
    }
    printf("sum %lx\n", sum);
    say_counts();
    return 0;
}
