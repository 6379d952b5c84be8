/* Functions whose unlikely code the compiler moves out of line, into NAME.cold. That part jumps
 * back, returns, ends in a tail call, or calls a noreturn function. */
#include "body.h"

#include <setjmp.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

/* A call of a cold function makes the calling block cold. */
__attribute__((noinline, cold, noipa)) static long rarely(long x) { return x * 5 + 1; }
NOINLINE static long often(long x) { return x + 1; }

NOINLINE long comes_back(long x, long y)
{
    long sum = often(x);
    if (UNLIKELY(x % 7 == 0))
        sum += rarely(x) + rarely(x + 1);
    return often(sum) + y;
}

NOINLINE long returns(long x, long y)
{
    if (UNLIKELY(x % 7 == 0)) {
        long a = rarely(x), b = rarely(a);
        return a ^ b ^ y;
    }
    return often(x) + y;
}

NOINLINE long tail_calls(long x, long y)
{
    if (UNLIKELY(x % 7 == 0))
        return rarely(rarely(x) + y);
    return often(x) + y;
}

/* Not cold itself: it has no frame when it reaches the call in the cold part. */
NOINLINE long tail_calls_at_once(long x, long y)
{
    if (UNLIKELY(x % 7 == 0))
        return rarely(x + y);
    return x * 3 + y;
}

static jmp_buf back;
__attribute__((noinline, cold, noipa, noreturn)) static void give_up(long x)
{
    longjmp(back, (int)x);
}

NOINLINE static long may_give_up(long x, long y)
{
    long sum = often(x);
    if (UNLIKELY(x % 7 == 0))
        give_up(sum);
    return often(sum) + y;
}

NOINLINE long does_not_return(long x, long y)
{
    int got = setjmp(back);
    return got ? got : may_give_up(x, y);
}

static long expect_comes_back(long x, long y)
{
    return x + 2 + y + (x % 7 == 0 ? (x * 5 + 1) + (x * 5 + 6) : 0);
}
static long expect_returns(long x, long y)
{
    return x % 7 == 0 ? (x * 5 + 1) ^ ((x * 5 + 1) * 5 + 1) ^ y : x + 1 + y;
}
static long expect_tail_calls(long x, long y)
{
    return x % 7 == 0 ? (x * 5 + 1 + y) * 5 + 1 : x + 1 + y;
}
static long expect_at_once(long x, long y) { return x % 7 == 0 ? (x + y) * 5 + 1 : x * 3 + y; }
static long expect_no_return(long x, long y) { return x % 7 == 0 ? x + 1 : x + 2 + y; }

static const struct row rows[] = {
    {"comes_back", comes_back, expect_comes_back, 1},
    {"returns", returns, expect_returns, 1},
    {"tail_calls", tail_calls, expect_tail_calls, 1},
    {"tail_calls_at_once", tail_calls_at_once, expect_at_once, 1},
    {"does_not_return", does_not_return, expect_no_return, 1},
};

int main(void) { return call_all(ROWS(rows), 70); }
