/* Calls `setjmp` in each iteration of a loop. Each third iteration comes back to it by `longjmp`.
 * The arguments are the number of calls and that of the iterations of each call. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

static jmp_buf target;
static volatile long failed;

__attribute__((noinline)) static void fails(long i)
{
    if (i % 3 == 0)
        longjmp(target, 1);
}

__attribute__((noinline)) static void tries(long times)
{
    volatile long i = 0;
    do {
        if (setjmp(target))
            failed++;
        else
            fails(i);
        i++;
    } while (i < times);
}

__attribute__((noinline)) static void begins(long i)
{
    if (setjmp(target))
        failed++;
    else
        fails(i);
}

int main(int argc, char **argv)
{
    long calls = argc > 1 ? atol(argv[1]) : 5, times = argc > 2 ? atol(argv[2]) : 9;
    for (long i = 0; i < calls; i++) {
        tries(times);
        begins(i);
    }
    printf("ok %ld\n", failed);
    return 0;
}
