/* Frames of 64 KiB and 64 MiB, in probed functions and their callers, on a thread with a stack of
 * 512 MiB and on the first thread, whose stack grows during the measurement. */
#include <pthread.h>
#include <stdio.h>
#include <sys/resource.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))
enum { KIB_64 = 64 << 10, MIB_64 = 64 << 20 };

static long small_calls, medium_calls, large_calls;
static volatile int zero;

NOINLINE long small(long x)
{
    small_calls++;
    return x * 3 + 1;
}

NOINLINE long medium(long x)
{
    volatile char frame[KIB_64];
    frame[zero] = (char)x;
    medium_calls++;
    return small(x) + (frame[zero] == (char)x);
}

NOINLINE long large(long x)
{
    volatile char frame[MIB_64];
    frame[zero] = (char)x;
    frame[MIB_64 - 1] = 1;
    large_calls++;
    return medium(x) + small(x) + (frame[zero] == (char)x) + frame[MIB_64 - 1];
}

/* Has a frame pointer, because the size of its frame varies. */
NOINLINE static long by_need(long x, long size)
{
    volatile char frame[size];
    frame[0] = (char)x;
    long sum = small(x) + large(x);
    return sum + (frame[0] == (char)x);
}

static void *all(void *unused)
{
    long sum = 0;
    for (long i = 0; i < 100; i++) {
        sum = sum * 5 + small(i);
        sum = sum * 5 + medium(i);
        sum = sum * 5 + large(i);
        sum = sum * 5 + by_need(i, i % 2 ? MIB_64 : KIB_64);
    }
    printf("sum %lx\n", sum);
    return unused;
}

int main(void)
{
    struct rlimit limit;
    getrlimit(RLIMIT_STACK, &limit);
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_STACK, &limit))
        return 2;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 512l << 20);
    pthread_t thread;
    if (pthread_create(&thread, &attributes, all, NULL))
        return 3;
    pthread_join(thread, NULL);
    all(NULL);
    printf("calls small %ld\ncalls medium %ld\n", small_calls, medium_calls);
    printf("calls large %ld\n", large_calls);
    return 0;
}
