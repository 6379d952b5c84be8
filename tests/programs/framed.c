/* Calls of `work` on paths through frames of every size. All calls are direct, and no function
 * occurs twice on a path. The stack is never unwound, so its unwind entries may be wrong. */
#include <stdio.h>
#include <string.h>

#define FAR __attribute__((noinline, noclone))
#define FRAMED __attribute__((noinline, noclone, optimize("no-omit-frame-pointer")))

FAR long work(long x) { return x * 3 + 1; }
FAR long work2(long x, long y) { return work(x ^ y) + 1; }

static long keep(volatile char *bytes, long size, long x) {
    bytes[x % size] = (char)x;
    return bytes[(x * 7) % size];
}

/* Frames of different sizes with saved registers: values between two calls must survive the
 * first. */
#define LEVEL(kind, name, size, next, other)           \
    kind long name(long x, long y) {                   \
        volatile char bytes[size];                     \
        memset((char *)bytes, 1, size);                \
        long before = keep(bytes, size, x);            \
        long first = next(x + 1, y ^ before);          \
        if (x % 3 == 0)                                \
            first += other(x + y, before) * y;         \
        return first + before + keep(bytes, size, y & 63); \
    }

FAR long leaf(long x, long y) { return work(x) + y; }
LEVEL(FAR, a1, 24, leaf, work2)
LEVEL(FRAMED, a2, 40, a1, leaf)
LEVEL(FAR, a3, 136, a2, a1)
LEVEL(FAR, a4, 4000, a3, leaf)
LEVEL(FRAMED, a5, 264, a4, a2)
LEVEL(FAR, a6, 1000, a5, a3)
LEVEL(FAR, b1, 72, leaf, work2)
LEVEL(FAR, b2, 520, b1, a2)
LEVEL(FRAMED, b3, 2056, b2, a4)
LEVEL(FAR, b4, 88, b3, b1)

int main(void) {
    long sum = 0;
    for (long x = 0; x < 12; x++)
        sum += a6(x, x * 5) + b4(x, x + 2);
    printf("%ld\n", sum);
    return 0;
}
