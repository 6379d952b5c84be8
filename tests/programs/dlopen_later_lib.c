/* A library that works in its constructor, on request, and in its destructor. */
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
