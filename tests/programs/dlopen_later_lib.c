/* A library that works before it is asked to, and once more at its end. */
#define NOINLINE __attribute__((noinline, noclone, noipa))

void count_call(void);

NOINLINE long later(long x)
{
    count_call();
    return x + 1;
}

NOINLINE long from_constructor(long x)
{
    return later(x) + 1;
}

__attribute__((constructor)) static void begin(void)
{
    from_constructor(7);
}

__attribute__((destructor)) static void end(void)
{
    from_constructor(8);
}
