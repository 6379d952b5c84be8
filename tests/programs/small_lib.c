/* A small library for same_file.c: each mapping counts its own calls. */
unsigned long small_calls(void);
unsigned long small_work(unsigned long x);

static unsigned long calls;

__attribute__((noinline, noclone, noipa)) unsigned long small_work(unsigned long x)
{
    calls++;
    return x * 5 ^ x >> 3;
}

unsigned long small_calls(void)
{
    return calls;
}
