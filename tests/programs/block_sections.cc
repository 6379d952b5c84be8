// For clang's -fbasic-block-sections: functions with separated blocks. Some return, some leave by a
// tail call, and one block is a landing pad. Prints the number of calls of each function.
#include <cstdio>
#include <cstring>

#define NOINLINE __attribute__((noinline))

static long calls_work, calls_leaf, calls_middle, calls_catches;

extern "C" {
NOINLINE long leaf(long x) {
    calls_leaf++;
    volatile long y = x;
    return y + 1;
}

NOINLINE long work(long x) {
    calls_work++;
    if (__builtin_expect(x % 10 == 3, 0)) {
        char room[256];
        memset(room, (int)x, sizeof room);
        asm volatile("" : : "r"(room) : "memory");
        return leaf(room[3]) + 1;
    }
    if (x % 7 == 2)
        return x * 3;
    long sum = 0;
    for (int i = 0; i < x % 5; i++) {
        sum += leaf(i);
        if (sum > 1000)
            return -1;
    }
    switch (x % 6) {
    case 0: return sum + leaf(7);
    case 1: sum *= 3; break;
    case 2: sum ^= 5; break;
    case 3: sum -= 9; break;
    case 4: return leaf(sum);
    default: sum |= 1;
    }
    return sum;
}

NOINLINE long catches(long x) {
    calls_catches++;
    try {
        if (x % 11 == 0)
            throw x;
        return work(x) + 1;
    } catch (long caught) {
        return leaf(caught);
    }
}

NOINLINE long middle(long x) {
    calls_middle++;
    if (x % 3)
        return catches(x) + 1;
    return work(x + 1) - 1;
}
}

int main() {
    long sum = 0;
    for (int i = 0; i < 1000; i++)
        sum += middle(i);
    printf("sum %ld\n", sum);
    printf("calls work %ld\ncalls leaf %ld\ncalls middle %ld\ncalls catches %ld\n", calls_work, calls_leaf, calls_middle,
           calls_catches);
    return 0;
}
