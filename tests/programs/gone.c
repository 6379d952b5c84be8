/* The library for late.c. */
__attribute__((noinline)) long gone_work(long x) { return x * 3 + 1; }
