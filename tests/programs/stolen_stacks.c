/* Coroutines that two threads steal from each other: each suspends inside work(), and the other
 * thread continues it.
 *
 * The first argument selects the return address of a coroutine's outermost function:
 *   null      0
 *   word      a word outside of code
 *   code      code that follows no call
 *   untabled  a call in code without unwind entries
 *   frame     0, with the stacks in main's frame
 *   jumps     untabled, and work() is left by longjmp every third time
 * With a second argument each stack has its own mapping, instead of a part of one.
 *
 * Prints for each path the calls and two times that it has measured itself, in ns: `inside` within
 * work(), and `outside` around the call. The time of the calls is between the two, however busy the
 * machine is. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define APART __attribute__((noinline, noclone, noipa))

enum { COROUTINES = 6, ROUNDS = 12, STACK = 65536, PATHS = 3 };

struct coroutine {
    void *own, *back;
    long id, done, last, busy;
    long wake, inside, outside, calls, left;
    jmp_buf out;
};

#include "stealing.h"

static int jumps;
static __thread struct coroutine *current;

void switch_stacks(void **from, void *to);
__asm__(".text\n.globl switch_stacks\n.type switch_stacks, @function\n"
        "switch_stacks:\n"
        "push %rbp; push %rbx; push %r12; push %r13; push %r14; push %r15\n"
        "mov %rsp, (%rdi); mov %rsi, %rsp\n"
        "pop %r15; pop %r14; pop %r13; pop %r12; pop %rbx; pop %rbp\n"
        "ret\n.size switch_stacks, . - switch_stacks\n");

/* Code without unwind entries, and no instruction shows its frame: rbx is 0. */
void body(void);
void untabled(void);
__asm__(".text\n.globl untabled\n"
        "jmp *%rax\n"
        "untabled: lea (%rsp, %rbx), %rsp\n"
        "call body\n"
        "lea (%rsp, %rbx), %rsp\n"
        "jmp *%rax\n");

APART struct coroutine *mine(void)
{
    return current;
}

APART void suspend(struct coroutine *coroutine)
{
    switch_stacks(&coroutine->own, coroutine->back);
    __asm__ volatile("");
}

APART long work(struct coroutine *coroutine, long ms)
{
    long start = now();
    coroutine->calls++;
    coroutine->wake = start + ms * 1000000;
    suspend(coroutine);
    if (jumps && coroutine->calls % 3 == 0) {
        coroutine->left++;
        longjmp(coroutine->out, 1);
    }
    coroutine->inside += now() - start;
    return ms;
}

/* A call of work() from its own call site, below a given number of recursive calls. */
#define PATH(number, ms) \
    APART long path_##number(struct coroutine *coroutine, int deep) \
    { \
        if (deep > 0) \
            return path_##number(coroutine, deep - 1) + 1; \
        long start = now(); \
        if (jumps && setjmp(coroutine->out) != 0) \
            return 0; \
        long result = work(coroutine, ms); \
        coroutine->outside += now() - start; \
        return result + number; \
    }

PATH(0, 1)
PATH(1, 5)
PATH(2, 20)

__attribute__((used)) APART void body(void)
{
    static long (*const paths[PATHS])(struct coroutine *, int) = {path_0, path_1, path_2};
    struct coroutine *coroutine = mine();
    long sum = 0;
    for (int round = 0; round < ROUNDS; round++)
        sum += paths[coroutine->id % PATHS](coroutine, coroutine->id);
    coroutine->done = sum + 1;
    for (;;)
        suspend(coroutine);
}

static void resume(struct coroutine *coroutine)
{
    current = coroutine;
    switch_stacks(&coroutine->back, coroutine->own);
}

static void begin(struct coroutine *coroutine, char *stack, const char *what)
{
    void **sp = (void **)(stack + STACK - 64);
    static long word;
    int is_untabled = strcmp(what, "untabled") == 0 || strcmp(what, "jumps") == 0;
    *--sp = NULL;
    *--sp = NULL;
    if (strcmp(what, "word") == 0)
        sp[0] = &word;
    if (strcmp(what, "code") == 0)
        sp[0] = (void *)untabled;
    *--sp = is_untabled ? (void *)untabled : (void *)body;
    for (int i = 0; i < 6; i++)
        *--sp = NULL;
    coroutine->own = sp;
}

static void run(char *memory, const char *what)
{
    for (long i = 0; i < COROUTINES; i++) {
        char *stack = memory + i * STACK;
        if (memory == NULL)
            stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        coroutines[i].id = i;
        coroutines[i].last = -1;
        begin(&coroutines[i], stack, what);
        /* Nothing is mapped directly above it. */
        if (memory == NULL)
            mprotect(mmap(NULL, STACK, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), STACK, PROT_NONE);
    }
    run_all();
}

int main(int count, char **words)
{
    const char *what = count > 1 ? words[1] : "null";
    size_t size = COROUTINES * STACK;
    jumps = strcmp(what, "jumps") == 0;
    if (strcmp(what, "frame") == 0) {
        char memory[COROUTINES * STACK] __attribute__((aligned(64)));
        run(memory, what);
    } else {
        int flags = MAP_PRIVATE | MAP_ANONYMOUS;
        run(count > 2 ? NULL : mmap(NULL, size, PROT_READ | PROT_WRITE, flags, -1, 0), what);
    }
    long calls = 0, gone = 0;
    for (int path = 0; path < PATHS; path++) {
        long inside = 0, outside = 0;
        for (int i = path; i < COROUTINES; i += PATHS) {
            inside += coroutines[i].inside;
            outside += coroutines[i].outside;
            calls += coroutines[i].calls;
            gone += coroutines[i].left;
        }
        printf("inside path_%d %ld\noutside path_%d %ld\n", path, inside, path, outside);
    }
    printf("calls work %ld\nleft work %ld\n", calls, gone);
}
