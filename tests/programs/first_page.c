/* A library whose headers, tables and code all begin in the file's first page, if the linker places
 * them so closely. Functions are about a page apart: a rule that is off by a page belongs to
 * another frame. */

long rounds;

#define INSIDE __attribute__((noinline, visibility("hidden")))

INSIDE long work(long x) {
    volatile long y = x;
    rounds++;
    return y + 1;
}

/* Its frame differs in size from that of `mid`, a page before it. */
__attribute__((noinline)) long wide(long x) {
    volatile long z[4] = {x, x, x, x};
    __asm__ volatile(".fill 4900, 1, 0x90");
    long r = work(z[0] + z[3]);
    __asm__ volatile(".fill 200, 1, 0x90");
    return r + z[1];
}

INSIDE long mid(long x) {
    return work(x) + 1;
}

__attribute__((noinline)) long narrow(long x) {
    __asm__ volatile(".fill 4900, 1, 0x90");
    long r = work(x + x);
    __asm__ volatile(".fill 200, 1, 0x90");
    return r + 1;
}

INSIDE long outer(long x) {
    return mid(x) + 1;
}

__attribute__((noinline)) long outermost(long x) {
    return outer(x) + wide(x) + narrow(x);
}
