/* For programs that count their calls of `work` themselves, in `calls`. */
#ifndef COUNTED_H
#define COUNTED_H

#define NOINLINE __attribute__((noinline, noclone, noipa))

static volatile long calls;

NOINLINE long work(long x)
{
    calls++;
    return x * 3 + 1;
}

#endif
