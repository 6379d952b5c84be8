/* An interpreter that dispatches through a table of labels (GCC manual, "Labels as Values"), with
 * calls in its instructions, one of them recursive. */
#include "counted.h"

#include <stdio.h>

NOINLINE static long twice(long x) { return work(x) + work(x + 1); }

enum { PUSH, ADD, MULTIPLY, CALL, TWICE, ENTER, DROP, LOOP, END };

NOINLINE long run(const unsigned char *code, long start)
{
    static const void *const labels[] = {&&push, &&add, &&multiply, &&call, &&twice_, &&enter, &&drop, &&loop, &&end};
    long stack[64] = {start}, *top = stack, left = 3;
    const unsigned char *at = code;
    long before = work(start);
#define NEXT goto *labels[*at++]
    NEXT;
push:
    *++top = *at++;
    NEXT;
add:
    top--;
    top[0] += top[1];
    NEXT;
multiply:
    top--;
    top[0] *= top[1];
    NEXT;
call:
    top[0] = work(top[0]);
    NEXT;
twice_:
    top[0] += twice(before);
    NEXT;
enter:
    top[0] += run(at + 1, top[0]);
    at += *at + 1;
    NEXT;
drop:
    top--;
    NEXT;
loop:
    if (--left > 0)
        at = code;
    NEXT;
end:
    return top[0] + work(before);
}

int main(void)
{
    static const unsigned char inner[] = {PUSH, 7, CALL, ADD, PUSH, 3, MULTIPLY, TWICE, PUSH, 9, DROP, LOOP, END};
    static const unsigned char outer[] = {PUSH, 5, CALL, MULTIPLY, ENTER, 6, PUSH, 2, TWICE, ADD, CALL, END,
                                          TWICE, LOOP, END};
    unsigned long sum = 0;
    for (long i = 0; i < 200; i++)
        sum = sum * 7 + (unsigned long)run(outer, i % 9) + (unsigned long)run(inner, i % 5);
    printf("sum %lu\ncalls work %ld\n", sum, calls);
    return 0;
}
