/* A library with a function that notifies the program; with OTHER defined, it is a different
 * function with code of the same length. */
#define NOINLINE __attribute__((noinline, noclone, noipa))

#ifdef OTHER
#define AT_WORK at_other_work
#define STEP ^
#else
#define AT_WORK at_work
#define STEP +
#endif

void note(void);

NOINLINE long AT_WORK(long x)
{
    note();
    return (x STEP 0x1234567) * 3;
}

NOINLINE long later(long x)
{
    return AT_WORK(x) STEP 0x1234567;
}
