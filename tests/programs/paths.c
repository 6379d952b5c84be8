/* Call paths into `work` from several threads: direct callers, recursion, mutual recursion,
 * function pointers, static functions, and tail calls into and out of the probed function.
 * Prints its own number of calls and a checksum; ends with status 3. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))
#define THREADS 4

static atomic_long calls;

typedef long (*unary)(long);

NOINLINE static long finish(long x) { return x * 5 + 1; }

/* Leaves by a tail call for odd arguments and by a return for even ones. */
NOINLINE long work(long x)
{
    atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed);
    if (x & 1)
        return finish(x + 2);
    return x ^ 12;
}

/* Reaches `work` by a tail call, so its own frame is gone by then. */
NOINLINE static long jumps_in(long x) { return work(x + 1); }

NOINLINE static long big_frame(long x)
{
    volatile char room[3000];
    room[x & 1023] = (char)x;
    return work(x) + room[x & 1023];
}

NOINLINE static long twice(long x) { return work(x) + 3 * work(x + 1); }

NOINLINE static long through_pointer(unary f, long x) { return f(x) - 1; }

NOINLINE static long down(long n)
{
    if (n == 0)
        return work(7) + 1;
    return down(n - 1) + work(n);
}

NOINLINE static long odd(long n);
NOINLINE static long even(long n) { return n == 0 ? work(n) + 2 : odd(n - 1) + 1; }
NOINLINE static long odd(long n) { return n == 0 ? work(n) - 2 : even(n - 1) + 2; }

static const unary table[] = {work, jumps_in, big_frame, twice, down, even};

NOINLINE static long dispatch(long i) { return through_pointer(table[i % 6], i) + 1; }

static void *thread(void *argument)
{
    long sum = 0, start = (long)argument;
    for (long i = start; i < start + 30; i++)
        sum += dispatch(i) + jumps_in(i);
    return (void *)(sum + work(start));
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    long sum = 0;
    for (long i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, thread, (void *)i);
    for (long i = 0; i < 12; i++)
        sum += dispatch(i);
    for (int i = 0; i < THREADS; i++) {
        void *result;
        pthread_join(threads[i], &result);
        sum += (long)result;
    }
    sum += down(40) + even(20) + odd(21);
    for (int i = 1; i < argc; i++)
        printf("argument %s\n", argv[i]);
    printf("calls %ld sum %ld\n", atomic_load(&calls), sum);
    return 3;
}
