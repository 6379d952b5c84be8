/* Calls through functions that never return: `main`, the function that ends it, and functions that
 * are only in a table, as in multi-call programs. */
#include "counted.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

NOINLINE static long twice(long x) { return work(x) + work(x + 1); }

NOINLINE static _Noreturn void leave(long sum)
{
    sum += twice(sum);
    printf("sum %ld\ncalls work %ld\n", sum, calls);
    exit(3);
}

NOINLINE static long length(const char *text)
{
    char copy[64];
    strncpy(copy, text, sizeof copy - 1);
    copy[sizeof copy - 1] = 0;
    return (long)strlen(copy);
}

static int counts(int count, char **arguments)
{
    long sum = 0;
    for (int i = 0; i < count; i++)
        sum += twice(length(arguments[i])) + work(i);
    leave(sum);
}

static int lists(int count, char **arguments)
{
    long sum = count;
    for (int i = 0; i < 20; i++)
        sum += work(sum & 15) ^ length(arguments[i % count]);
    leave(sum);
}

static int (*const all[])(int, char **) = {lists, counts};

NOINLINE static _Noreturn void run(long index, int count, char **arguments)
{
    char *name = strrchr(arguments[0], '/');
    long before = work(name ? length(name) : 0);
    if (getuid() == (uid_t)-2)
        before += twice(index);
    exit(all[index](count, arguments) + (int)before);
}

int main(int count, char **arguments)
{
    long first = count > 1 ? length(arguments[1]) : 1;
    run(work(first) & 1, count, arguments);
}
