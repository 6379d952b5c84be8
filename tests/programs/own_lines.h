/* A function that is inlined into functions of another file. */
static inline __attribute__((always_inline)) long halved(long x, volatile long *own)
{
    if (x & 1) {
        own[__LINE__]++;
        return 3 * x + 1;
    }
    own[__LINE__]++;
    return x / 2;
}
