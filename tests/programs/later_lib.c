/* A library without unwind entries. Once it is stripped, `inner` has no name either. */
#define NOINLINE __attribute__((noinline, noclone, noipa))

NOINLINE static long inner(void (*function)(void), long x)
{
    volatile long all[6] = {x};
    function();
    return all[0] + 1;
}

long through(void (*function)(void), long x)
{
    return inner(function, x) + inner(function, x + 1);
}
