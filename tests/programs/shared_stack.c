/* Coroutines that share the memory of one stack, as with the shared stacks of libco. To resume one,
 * its slice is copied to the stack. When it suspends, the slice is saved. Each suspends in work().
 *
 * The argument selects the callers of work():
 *   callers   one function for each of the two kinds of coroutines
 *   same      one function for all
 *
 * For each of these functions the program prints the number of calls, the shortest wait inside a
 * call, and the longest time around a call, in ns.
 *
 * With `jumps` there are no coroutines. leave() writes to its caller's frame, and every third call
 * of it ends by __builtin_longjmp. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define APART __attribute__((noinline, noclone, noipa))

enum { COROUTINES = 4, ROUNDS = 12, STACK = 65536, MS = 1000000 };

struct coroutine {
    char *own, *copy;
    long size, id, done, wake;
};

static struct coroutine coroutines[COROUTINES], *current;
static char *stack;
static void *scheduler;
static int is_same;
static long calls[2], longest[2], waits[2] = {4 * MS, 13 * MS};

void switch_stacks(void **from, void *to);
__asm__(".text\n.globl switch_stacks\n.type switch_stacks, @function\n"
        "switch_stacks:\n"
        "push %rbp; push %rbx; push %r12; push %r13; push %r14; push %r15\n"
        "mov %rsp, (%rdi); mov %rsi, %rsp\n"
        "pop %r15; pop %r14; pop %r13; pop %r12; pop %rbx; pop %rbp\n"
        "ret\n.size switch_stacks, . - switch_stacks\n");

static long now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

static void suspend(struct coroutine *self)
{
    switch_stacks((void **)&self->own, scheduler);
}

APART void work(struct coroutine *self, long wait)
{
    self->wake = now() + wait;
    suspend(self);
    __asm__ volatile(""); /* no tail call */
}

static void timed(int kind, long begun)
{
    long took = now() - begun;
    calls[kind]++;
    if (took > longest[kind])
        longest[kind] = took;
}

APART void first(struct coroutine *self)
{
    long begun = now();
    work(self, waits[0]);
    timed(0, begun);
}

APART void second(struct coroutine *self)
{
    long begun = now();
    work(self, waits[1]);
    timed(1, begun);
}

APART void any(struct coroutine *self)
{
    int kind = self->id & 1;
    long begun = now();
    work(self, waits[kind]);
    timed(kind, begun);
}

static void body(void)
{
    struct coroutine *self = current;
    void (*step)(struct coroutine *) = is_same ? any : self->id & 1 ? second : first;
    for (int round = 0; round < ROUNDS; round++)
        step(self);
    self->done = 1;
    for (;;)
        suspend(self);
}

static void resume(struct coroutine *coroutine)
{
    current = coroutine;
    memcpy(coroutine->own, coroutine->copy, coroutine->size);
    switch_stacks(&scheduler, coroutine->own);
    coroutine->size = stack + STACK - coroutine->own;
    memcpy(coroutine->copy, coroutine->own, coroutine->size);
}

static void make(struct coroutine *coroutine)
{
    void **top = (void **)(stack + STACK) - 8;
    *--top = 0;
    *--top = 0;
    *--top = body;
    top -= 6;
    coroutine->own = (char *)top;
    coroutine->size = stack + STACK - coroutine->own;
    coroutine->copy = malloc(STACK);
    memset(top, 0, 6 * sizeof *top);
    memcpy(coroutine->copy, top, coroutine->size);
}

enum { JUMPS = 3000 };
static void *out[5];

APART void leave(long number, long *frame)
{
    *frame = number;
    if (number % 3 == 0)
        __builtin_longjmp(out, 1);
}

APART void jump(long number)
{
    long frame = 0;
    if (!__builtin_setjmp(out))
        leave(number, &frame);
}

int main(int argc, char **argv)
{
    int left = COROUTINES;
    if (argc > 1 && !strcmp(argv[1], "jumps")) {
        for (long number = 0; number < JUMPS; number++)
            jump(number);
        printf("calls leave %d\nleft leave %d\n", JUMPS, JUMPS / 3);
        return 0;
    }
    is_same = argc > 1 && !strcmp(argv[1], "same");
    stack = mmap(0, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int id = 0; id < COROUTINES; id++) {
        make(&coroutines[id]);
        coroutines[id].id = id;
    }
    while (left)
        for (int id = 0; id < COROUTINES; id++)
            if (!coroutines[id].done && coroutines[id].wake <= now()) {
                resume(&coroutines[id]);
                left -= coroutines[id].done;
            }
    if (is_same) {
        printf("calls any %ld\n", calls[0] + calls[1]);
        printf("shortest any %ld\nlongest any %ld\n", waits[0], longest[0] > longest[1] ? longest[0] : longest[1]);
        return 0;
    }
    printf("calls first %ld\ncalls second %ld\n", calls[0], calls[1]);
    printf("shortest first %ld\nshortest second %ld\n", waits[0], waits[1]);
    printf("longest first %ld\nlongest second %ld\n", longest[0], longest[1]);
}
