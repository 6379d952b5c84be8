/* Creates `thread_churn THREADS` short threads, a few at a time, so that stacks and thread control
 * blocks are reused. Each calls `work`, and `around`, which calls it. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))
enum { BATCH = 8, OWN_STACKS = 2, STACK = 65536 };

static char stacks[OWN_STACKS][STACK] __attribute__((aligned(4096)));
static long calls[BATCH], around_calls[BATCH], sums[BATCH];

NOINLINE long work(long x) { return x * 3 + 1; }

NOINLINE long around(long x)
{
    long y = work(x) + 1;
    return y + work(y);
}

static void *thread(void *argument)
{
    long *own = argument, i = own - calls, sum = sums[i];
    for (int k = 0; k < 3; k++, calls[i]++)
        sum = sum * 5 + work(sum + k);
    sum = sum * 5 + around(sum);
    calls[i] += 2;
    around_calls[i]++;
    sums[i] = sum;
    return NULL;
}

int main(int argc, char **argv)
{
    long count = argc > 1 ? atol(argv[1]) : 0;
    pthread_attr_t attributes[BATCH];
    for (int i = 0; i < BATCH; i++) {
        pthread_attr_init(&attributes[i]);
        if (i < OWN_STACKS)
            pthread_attr_setstack(&attributes[i], stacks[i], STACK);
    }
    for (long made = 0; made < count; made += BATCH) {
        pthread_t threads[BATCH];
        for (int i = 0; i < BATCH; i++)
            if (pthread_create(&threads[i], &attributes[i], thread, &calls[i]))
                return 2;
        for (int i = 0; i < BATCH; i++)
            pthread_join(threads[i], NULL);
    }
    long work_calls = 0, of_around = 0, sum = 0;
    for (int i = 0; i < BATCH; i++) {
        work_calls += calls[i];
        of_around += around_calls[i];
        sum = sum * 7 + sums[i];
    }
    printf("calls work %ld\ncalls around %ld\nsum %lx\n", work_calls, of_around, sum);
    return 0;
}
