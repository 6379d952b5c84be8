/* A library for told.c with two callers of `note`. With OTHER defined, it is another build, and
 * its debug information states other source positions.
 */
#define NOINLINE __attribute__((noinline, noclone, noipa))

void note(void);

#ifdef OTHER
#line 1000 "other_lines.c"
#endif

NOINLINE long near_work(long x)
{
    note();
    return x * 3;
}

NOINLINE long far_work(long x)
{
    note();
#ifdef OTHER
    return x ^ 5;
#else
    return x + 5;
#endif
}

NOINLINE long later(long x)
{
    return (x < 100 ? near_work(x) : far_work(x)) + 1;
}
