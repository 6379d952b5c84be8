/* Ordinary functions, to be compiled with special code at their entries: endbr64, no-ops for
 * patching, calls of a tracer. Linked with fentry.S, the program also prints what the tracer
 * counted. */
#include "body.h"

#define NOINLINE __attribute__((noinline, noclone, noipa))

NOINLINE long leaf(long x, long y) { return x * 3 + y; }

NOINLINE long nothing(long x, long y)
{
    (void)y;
    return x;
}

NOINLINE long loops(long x, long y)
{
    do
        y += x;
    while (--x);
    return y;
}

NOINLINE long calls(long x, long y) { return leaf(x, y) + leaf(y, x) + 1; }

NOINLINE long jumps(long x, long y) { return leaf(x + 1, y); }

NOINLINE long recursive(long x, long y)
{
    return x == 0 ? y : recursive(x - 1, y + x) ^ x;
}

NOINLINE long through_pointer(long x, long y)
{
    static function *const table[] = {leaf, nothing, loops, calls};
    return table[x & 3](x, y);
}

NOINLINE long switches(long x, long y)
{
    switch (x % 8) {
    case 0: return leaf(x, 5);
    case 1: return nothing(x, y) + 3;
    case 2: return loops(x, y) ^ 9;
    case 3: return x * 7;
    case 4: return leaf(y, x) - 4;
    case 5: return calls(x, 2);
    case 6: return jumps(x, 1) + 8;
    default: return y;
    }
}

static const struct {
    const char *name;
    function *call;
} rows[] = {
    {"leaf", leaf},           {"nothing", nothing},     {"loops", loops},
    {"calls", calls},         {"jumps", jumps},         {"recursive", recursive},
    {"switches", switches},   {"through_pointer", through_pointer},
};
#define ROWS_HERE (int)(sizeof rows / sizeof *rows)

#ifdef FENTRY
/* The tracer's number of calls, and the sum of its return addresses relative to `leaf`. */
extern long fentry_calls, fentry_places;
#endif

/* The calls of each function that one call with x makes, computed by hand. */
static long made(const char *name, long most)
{
    long n = 0;
    for (long x = 1; x <= most; x++) {
        long through[4][5] = {{1, 0, 0, 0, 0}, {0, 1, 0, 0, 0}, {0, 0, 1, 0, 0}, {2, 0, 0, 1, 0}};
        long of[8][5] = {{1, 0, 0, 0, 0}, {0, 1, 0, 0, 0}, {0, 0, 1, 0, 0}, {0, 0, 0, 0, 0},
                         {1, 0, 0, 0, 0}, {2, 0, 0, 1, 0}, {1, 0, 0, 0, 1}, {0, 0, 0, 0, 0}};
        const char *inner[] = {"leaf", "nothing", "loops", "calls", "jumps"};
        for (int i = 0; i < 5; i++)
            if (__builtin_strcmp(name, inner[i]) == 0)
                n += 1 + through[x & 3][i] + of[x % 8][i];
        if (__builtin_strcmp(name, "leaf") == 0)
            n += 2 + 1; /* from calls and jumps */
        if (__builtin_strcmp(name, "recursive") == 0)
            n += x + 1;
        if (name[0] == 's' || name[0] == 't')
            n++;
    }
    return n;
}

int main(void)
{
    const long most = 64;
    unsigned long hash = 0;
    for (int i = 0; i < ROWS_HERE; i++)
        for (long x = 1; x <= most; x++)
            hash = hash * 31 + (unsigned long)rows[i].call(x, 11);
    for (int i = 0; i < ROWS_HERE; i++)
        printf("calls %s %ld\n", rows[i].name, made(rows[i].name, most));
    printf("results %lx\n", hash);
#ifdef FENTRY
    printf("traced %ld, at %ld\n", fentry_calls, fentry_places - fentry_calls * (long)leaf);
#endif
    return hash == 0;
}
