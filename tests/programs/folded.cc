// Functions with equal bodies, which linkers fold: -Wl,--icf=all. Prints its calls.
#include <cstdio>
#include <cstdlib>

#define NOINLINE __attribute__((noinline, noclone))

NOINLINE long alpha(long x)
{
    volatile long y = x;
    y += 7;
    return y * 3;
}

NOINLINE long beta(long x)
{
    volatile long y = x;
    y += 7;
    return y * 3;
}

struct Third {
    NOINLINE static long gamma(long x)
    {
        volatile long y = x;
        y += 7;
        return y * 3;
    }
    NOINLINE explicit Third(long x) : value(x)
    {
        volatile long y = x; // Long enough for a jump.
        value += y;
    }
    long value;
};

extern "C" NOINLINE void release(void *p) noexcept
{
    volatile long y = *static_cast<long *>(p);
    (void)y;
}
extern "C" void give_back(void *p) noexcept __attribute__((alias("release")));

int main()
{
    volatile long sum = 0;
    for (long i = 0; i < 100; i++) {
        sum += alpha(i);
        if (i % 2)
            sum += beta(i);
        if (i % 5 == 0)
            sum += Third::gamma(i);
        Third third(i);
        sum += third.value;
        release(&third);
        give_back(&third);
    }
    std::printf("calls alpha 100\ncalls beta 50\ncalls gamma 20\ncalls release 200\ncalls third 100\n");
}
