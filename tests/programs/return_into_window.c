/* Threads that sleep in a function that another function calls from its first or last bytes: their
 * return addresses are where patches would be.
 *
 * Prints `ready` when all sleep. Each SIGUSR1 lets them return, make CALLS further calls and sleep
 * again: `calls NAME N` counts the calls that ended so far, then it prints `again` and, the second
 * time, `ok`. */
#include "function.h"
#include "gate.h"
#include <semaphore.h>

#define CALLS 1000

/* long f(long x, long (*callee)(long)): callee(x) + 1; all of them call `sleeper` in the end. */
long call_first(long x, long (*callee)(long));
long call_second(long x, long (*callee)(long));
long call_short(long x, long (*callee)(long));
long call_last(long x, long (*callee)(long));
long call_before_pop(long x, long (*callee)(long));

/* Not all callers keep the stack aligned. */
__attribute__((noinline, force_align_arg_pointer)) long sleeper(long x);

__asm__(".text\n"
        "function call_first\n"
        "  call passed_on\n" /* return address at +5: the window's end */
        "  lea 1(%rax), %rax\n"
        "  ret\n"
        "end call_first\n"

        "function call_second\n"
        "  push %rbx\n"
        "  .cfi_def_cfa_offset 16\n"
        "  .cfi_offset %rbx, -16\n"
        "  call passed_on\n" /* at +6, the window's end again */
        "  lea 1(%rax), %rax\n"
        "  pop %rbx\n"
        "  .cfi_def_cfa_offset 8\n"
        "  ret\n"
        "end call_second\n"

        "function call_short\n"
        "  call *%rsi\n" /* at +2, inside five bytes */
        "  lea 1(%rax), %rax\n"
        "  ret\n"
        "end call_short\n"

        "function call_last\n"
        "  lea 1(%rdi), %rdi\n"
        "  lea (%rdi), %rdi\n"
        "  call *%rsi\n" /* returns to a single `ret` */
        "  ret\n"
        "end call_last\n"

        "function call_before_pop\n"
        "  push %rbx\n"
        "  .cfi_def_cfa_offset 16\n"
        "  .cfi_offset %rbx, -16\n"
        "  lea 1(%rdi), %rdi\n"
        "  lea (%rdi), %rdi\n"
        "  call *%rsi\n"
        "  pop %rbx\n"
        "  .cfi_def_cfa_offset 8\n"
        "  ret\n"
        ".skip 16, 0x90\n" /* the padding that its neighbors lack */
        "end call_before_pop\n"

        /* Called by the functions above that do not take a callee of their own. */
        "function passed_on\n"
        "  jmp sleeper\n"
        "end passed_on\n");

struct way {
    const char *name;
    long (*function)(long, long (*)(long));
    long calls;
    long wrong;
    sem_t awake;
};

static struct way ways[] = {
    {.name = "call_first", .function = call_first},
    {.name = "call_second", .function = call_second},
    {.name = "call_short", .function = call_short},
    {.name = "call_last", .function = call_last},
    {.name = "call_before_pop", .function = call_before_pop},
};
#define WAYS (int)(sizeof ways / sizeof *ways)

static sem_t asleep;
/* Wakes up the next call of the thread. */
static _Thread_local sem_t *wake_up;

long sleeper(long x)
{
    if (wake_up) {
        sem_t *signal = wake_up;
        wake_up = NULL;
        sem_post(&asleep);
        while (sem_wait(signal) < 0)
            ;
    }
    return x * 3;
}

static void call(struct way *way, long x)
{
    long moved = way->function == call_last || way->function == call_before_pop;
    long wanted = moved ? (x + 1) * 3 : x * 3 + 1;
    way->wrong += way->function(x, sleeper) != wanted;
    way->calls++;
}

static void *run(void *argument)
{
    struct way *way = argument;
    for (int round = 0; round < 3; round++) {
        wake_up = &way->awake;
        for (long x = 0; x < CALLS; x++)
            call(way, x);
    }
    return NULL;
}

int main(void)
{
    await_nothing_yet();
    sem_init(&asleep, 0, 0);
    pthread_t threads[WAYS];
    for (int i = 0; i < WAYS; i++) {
        sem_init(&ways[i].awake, 0, 0);
        pthread_create(&threads[i], NULL, run, &ways[i]);
    }
    const char *lines[] = {"ready", "again", "once more"};
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < WAYS; i++)
            sem_wait(&asleep);
        for (int i = 0; i < WAYS; i++)
            printf("calls %s %ld\n", ways[i].name, ways[i].calls);
        say(lines[round]);
        await_test(SIGUSR1);
        for (int i = 0; i < WAYS; i++)
            sem_post(&ways[i].awake);
    }
    long wrong = 0;
    for (int i = 0; i < WAYS; i++) {
        pthread_join(threads[i], NULL);
        wrong += ways[i].wrong;
    }
    say(wrong ? "wrong" : "ok");
    return wrong != 0;
}
