// An interpreter like Lua's: it jumps through a table of labels to the code of each instruction,
// and errors leave by longjmp. Its last call does not return. To be compiled without unwind tables
// and stripped.
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))

enum { ADD, DOUBLE, CALL, RAISE, LOOP, RETURN };

struct state {
    jmp_buf *handler;
    long value, steps;
};

static long calls;

NOINLINE long work(long x)
{
    calls++;
    return x + 1;
}

NOINLINE __attribute__((noreturn)) static void raise_error(struct state *state, long code)
{
    state->value = work(code);
    if (state->handler)
        longjmp(*state->handler, 1);
    abort();
}

NOINLINE static long execute(struct state *state, const unsigned char *code, int depth)
{
    static const void *const table[] = {&&add, &&twice, &&call, &&raise, &&loop, &&end};
    char room[24];
    const unsigned char *at = code;
    long sum = depth;
    memset(room, depth, sizeof room);
    __asm__ volatile("" : : "r"(room) : "memory");
    goto *table[*at++];
add:
    sum += work(sum);
    goto *table[*at++];
twice:
    sum += sum;
    if (sum > 100000)
        goto bad;
    goto *table[*at++];
call:
    if (depth > 0)
        sum += execute(state, code, depth - 1);
    goto *table[*at++];
raise:
    if ((state->steps & 7) == 5)
        goto bad;
    goto *table[*at++];
loop:
    if (++state->steps & 3)
        at = code;
    goto *table[*at++];
end:
    return sum + work(room[3]);
bad:
    raise_error(state, sum & 0xff);
}

NOINLINE static long protected(struct state *state, const unsigned char *code, int depth)
{
    jmp_buf handler;
    jmp_buf *before = state->handler;
    volatile long result = 0;
    state->handler = &handler;
    if (!setjmp(handler))
        result = execute(state, code, depth);
    else
        result = state->value;
    state->handler = before;
    return result;
}

int main(void)
{
    static const unsigned char code[] = {ADD, DOUBLE, CALL, ADD, RAISE, LOOP, RETURN};
    struct state state = {0};
    long sum = 0;
    for (int i = 0; i < 60; i++)
        sum += protected(&state, code, i % 4);
    printf("sum %ld\n", sum & 0xffffff);
    printf("calls work %ld\n", calls);
    return 0;
}
