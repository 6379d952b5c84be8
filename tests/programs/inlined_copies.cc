// Functions that GCC inlines in `main` and also emits: one with internal linkage, a member of a
// class in an anonymous namespace, a constructor, a destructor, and a function with three names.
//
// Prints `calls N`, the calls of each.
#include <cstdio>

static volatile long sum;
static long calls;

static long internal(long x)
{
    sum = sum + 5;
    return x + sum;
}

namespace
{
struct Hidden
{
    long value;
    long member(long x)
    {
        sum = sum + x;
        return value + x;
    }
};
}

struct Guard
{
    long value;
    __attribute__((used)) Guard() : value(sum) { sum = sum + 1; }
    __attribute__((used)) ~Guard() { sum = sum - value; }
};

// A function with three names.
extern "C" {
long shared(long x)
{
    sum = sum + 7;
    return x - sum;
}
long first_alias(long) __attribute__((alias("shared")));
long third_alias(long) __attribute__((alias("shared")));
}

long (*volatile keep_internal)(long) = internal;
long (Hidden::*volatile keep_member)(long) = &Hidden::member;

int main()
{
    Hidden hidden{3};
    long result = 0;
    for (long i = 0; i < 1000; i++) {
        result += internal(i) + hidden.member(i) + shared(i);
        Guard guard;
        calls++;
    }
    std::printf("calls %ld\n", calls);
    return result == 0;
}
