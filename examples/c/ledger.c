/* Who holds the lock? Four threads post orders to one ledger. Occasionally one of them sorts it, holding the lock.
 *
 *     make -C examples c
 *     examples/c/ledger &
 *     ipath attach $! -f pthread_mutex_lock -f post -m cpu,blocked
 *
 * What you see: calls of `pthread_mutex_lock` from `post` are blocked. `post` has CPU time of its own, and this is the
 * time for which the others wait: `i` (its callees) leads to `put_in_order`.
 *
 *     ledger [SECONDS]        10 by default */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))
#define ACCOUNTS 4096

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long ledger[ACCOUNTS];
static time_t end;

static int by_size(const void *a, const void *b)
{
    long x = *(const long *)a, y = *(const long *)b;
    return (x > y) - (x < y);
}

/* Returns the largest balance. */
NOINLINE static long put_in_order(void)
{
    qsort(ledger, ACCOUNTS, sizeof ledger[0], by_size);
    return ledger[ACCOUNTS - 1];
}

NOINLINE static long post(int order)
{
    long largest = 0;
    pthread_mutex_lock(&lock);
    ledger[order * 7919L % ACCOUNTS] += order;
    if (order % 32 == 0)
        largest = put_in_order();
    pthread_mutex_unlock(&lock);
    return largest;
}

NOINLINE static long take_order(int order)
{
    usleep(100);
    return post(order) + order;
}

static void *work(void *first)
{
    long largest = 0;
    for (int order = *(int *)first; time(NULL) < end; order += 4)
        largest += take_order(order);
    return (void *)largest;
}

int main(int argc, char **argv)
{
    pthread_t threads[4];
    int first[4];
    end = time(NULL) + (argc > 1 ? atoi(argv[1]) : 10);
    for (int i = 0; i < 4; i++) {
        first[i] = i;
        pthread_create(&threads[i], NULL, work, &first[i]);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    printf("%ld\n", ledger[0]);
    return 0;
}
