// Threads that end in the middle of calls whose objects are destroyed by unwinding:
// `thread_ends_cpp exit` by pthread_exit, `thread_ends_cpp cancel` canceled at a cancellation
// point. All of them live until the last one ends.
#include "ends.h"

#include <cxxabi.h>
#include <pthread.h>
#include <semaphore.h>

static const int THREADS = 5;

static bool is_cancel;
static sem_t ready, never;
static pthread_barrier_t all_there;
static long cleaned;

PROBED long cleans(long x)
{
    enter(CLEANS);
    return leave(CLEANS, x * 3 + 1);
}

struct Guard {
    long x;
    ~Guard() { __atomic_fetch_add(&cleaned, cleans(x), __ATOMIC_RELAXED); }
};

PROBED long leaves(long x)
{
    enter(LEAVES);
    if (x == 0)
        throw x;
    pthread_barrier_wait(&all_there);
    sem_post(&ready);
    if (!is_cancel)
        pthread_exit(reinterpret_cast<void *>(x));
    while (sem_wait(&never) == 0)
        ;
    return leave(LEAVES, x);
}

PROBED long inner(long x)
{
    enter(INNER);
    return leave(INNER, leaves(x) + 1);
}

PROBED long middle(long x)
{
    enter(MIDDLE);
    Guard guard{x};
    try {
        return leave(MIDDLE, inner(x) + 1);
    } catch (const abi::__forced_unwind &) {
        cleans(x);
        throw;
    }
}

PROBED long outer(long x)
{
    enter(OUTER);
    Guard guard{x};
    long got = 0;
    try {
        got = middle(x);
    } catch (long thrown) {
        got = thrown;
    }
    return leave(OUTER, got);
}

static void *thread(void *argument)
{
    for (int i = 0; i < 20; i++)
        outer(0);
    return reinterpret_cast<void *>(outer(reinterpret_cast<long>(argument)));
}

int main(int argc, char **argv)
{
    is_cancel = argc > 1 && strcmp(argv[1], "cancel") == 0;
    sem_init(&ready, 0, 0);
    sem_init(&never, 0, 0);
    pthread_barrier_init(&all_there, nullptr, THREADS);
    pthread_t ids[THREADS];
    for (long i = 0; i < THREADS; i++)
        pthread_create(&ids[i], nullptr, thread, reinterpret_cast<void *>(i + 1));
    for (int i = 0; i < THREADS; i++)
        sem_wait(&ready);
    long sum = 0;
    for (long i = 0; i < THREADS; i++) {
        if (is_cancel)
            pthread_cancel(ids[i]);
        void *result;
        pthread_join(ids[i], &result);
        sum = sum * 3 + reinterpret_cast<long>(result);
    }
    printf("cleaned %ld sum %ld\n", cleaned, sum);
    say_counts();
    return 0;
}
