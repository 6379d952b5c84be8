/* A library with a function; another one where OTHER is defined, whose code is as long. */
#ifdef OTHER
#define DO(x) ((x) ^ 0x1234567)
#else
#define DO(x) ((x) + 0x1234567)
#endif

__attribute__((noinline, noclone, noipa)) long later(long x)
{
    return DO(x) * 3;
}
