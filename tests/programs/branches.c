/* Functions of all kinds of control flow, called in a fixed order: branches, nested loops, a switch
 * with a table, a goto out of a loop, recursion, calls that do not return, and a loop that ends with
 * a call.
 *
 *     branches ROUNDS [THREADS]
 *
 * With THREADS, each thread makes the same calls. Prints `ok SUM`. */
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))

static __thread jmp_buf target;

NOINLINE long leaf(long x) { return x * 3 + 1; }

NOINLINE long mixed(long n)
{
    long sum = 0;
    for (long i = 0; i < n; i++) {
        if (i % 3 == 0)
            sum += i;
        else if (i % 5 == 0)
            sum ^= i << 1;
        for (long k = i; k > 0; k /= 2)
            if (k & 1)
                sum++;
        if (sum > 100000)
            goto out;
    }
    sum += 7;
out:
    return sum;
}

NOINLINE long chosen(long which, long x)
{
    switch (which) {
    case 0: x += 1; break;
    case 1: x *= 3; /* fall through */
    case 2: x -= 5; break;
    case 3: x = leaf(x); break;
    case 4: x ^= 0x55; break;
    case 5: x = leaf(x) + leaf(x + 1); break;
    case 6: x >>= 1; break;
    case 7: x = -x; break;
    default: x = 0;
    }
    return x;
}

/* A loop around a jump table, some cases of which leave it. */
NOINLINE long interprets(long code, long x)
{
    for (long i = 0; i < 40; i++) {
        switch ((code + i * x) & 15) {
        case 0: x += 1; break;
        case 1: x *= 3; /* fall through */
        case 2: x -= 5; break;
        case 3: x ^= i; continue;
        case 4: x ^= 0x55; break;
        case 5:
            if (x & 1)
                break;
            return x;
        case 6: x >>= 1; break;
        case 7: x = -x; break;
        case 9: i += 2; break;
        case 10: x = x * x + code; break;
        case 11: return x + i;
        default: x &= 0xffff;
        }
        code = code * 5 + 1;
    }
    return x;
}

NOINLINE long descends(long depth)
{
    if (depth <= 1)
        return depth;
    return descends(depth - 1) + descends(depth - 2);
}

NOINLINE void jumps(long x)
{
    if (x % 3 == 0)
        longjmp(target, (int)x + 1);
}

/* Left inside the call of `jumps` one time in three. */
NOINLINE long left(long n)
{
    long sum = 0;
    for (long i = n; i < n + 3; i++) {
        jumps(i + (n & 1));
        sum += i;
    }
    return sum;
}

/* The loop begins at the instruction after a call. */
NOINLINE long ends_with_calls(long n)
{
    long x = leaf(n);
    do
        x = leaf(x) & 0xffff;
    while (x % 11);
    return x;
}

static NOINLINE long attempts(long i)
{
    return setjmp(target) ? 1 : left(i);
}

static void *run(void *rounds)
{
    long sum = 0;
    for (long i = 0; i < (long)rounds; i++) {
        sum += mixed(i % 50) + chosen(i % 9, i) + descends(i % 12) + ends_with_calls(i);
        sum += attempts(i) + interprets(i * 7, i);
    }
    return (void *)sum;
}

int main(int argc, char **argv)
{
    long rounds = argc > 1 ? atol(argv[1]) : 20, sum = 0;
    long threads = argc > 2 ? atol(argv[2]) : 0;
    pthread_t all[256];
    for (long i = 0; i < threads; i++)
        if (pthread_create(&all[i], NULL, run, (void *)rounds))
            return 2;
    for (long i = 0; i < threads; i++) {
        void *of;
        pthread_join(all[i], &of);
        sum += (long)of;
    }
    if (!threads)
        sum = (long)run((void *)rounds);
    printf("ok %ld\n", sum);
    return 0;
}
