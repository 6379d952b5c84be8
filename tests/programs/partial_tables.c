/* Call paths through functions of partial_tables.S, which have no unwind entries between code that
 * has. With INIT defined also through the functions that every file has from crti.o and crtbegin.o,
 * without entries: `_init`, which calls `__gmon_start__` if there is one, and
 * `__do_global_dtors_aux`. Prints `calls work N`. */
#include <stdio.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))

typedef long (*unary)(long);

long aligned(unary, long);
long saved(unary, long);
long repeated(unary, long);
long outer(unary, long);

static long calls;

NOINLINE long work(long n)
{
    calls++;
    return n * 3 + 1;
}

/* As many functions with entries as a file of this size usually has. */
#define PLAIN(name, next) \
    NOINLINE long name(long n) { return next(n + 1) - 1; }
PLAIN(plain_1, work)
PLAIN(plain_2, plain_1)
PLAIN(plain_3, plain_2)
PLAIN(plain_4, plain_3)
PLAIN(plain_5, plain_4)
PLAIN(plain_6, plain_5)
PLAIN(plain_7, plain_6)
PLAIN(plain_8, plain_7)
PLAIN(plain_9, plain_8)

NOINLINE static long by_outer(long n) { return outer(plain_1, n) + 1; }
NOINLINE static long by_saved(long n) { return saved(by_outer, n) + outer(plain_9, n); }
NOINLINE static long by_aligned(long n) { return aligned(by_saved, n) + saved(work, n); }
NOINLINE static long down(long n)
{
    return n == 0 ? by_aligned(n) : aligned(down, n - 1) + repeated(by_saved, n);
}

static long sum;

static void print(void *argument)
{
    (void)argument;
    sum += work(1);
    printf("calls work %ld\nsum %ld\n", calls, sum);
}

#ifdef INIT
extern void *__dso_handle;
int __cxa_atexit(void (*)(void *), void *, void *);

void __gmon_start__(void)
{
    sum += work(1);
}

/* Runs as late as possible, when `__do_global_dtors_aux` calls it at the end of the program. */
__attribute__((destructor)) static void end(void)
{
    __cxa_atexit(print, NULL, __dso_handle);
}
#endif

int main(void)
{
    for (long i = 0; i < 25; i++)
        sum += down(i % 5) + repeated(plain_4, i) + repeated(work, i);
#ifndef INIT
    print(NULL);
#endif
    return 0;
}
