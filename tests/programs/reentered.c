/* `reentered`: threads call two functions in a loop, and so does a signal handler that interrupts
 * them. `mixes` calls nothing, `chooses` calls `mixes` on some ways. Prints the number of calls of
 * each: `mixes N chooses N`. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))

enum { THREADS = 4, CALLS = 300000, SIGNALS = 20000 };

static atomic_long mixes_calls, chooses_calls;
static atomic_int ready;

NOINLINE long mixes(long n)
{
    long sum = n;
    for (long i = 0; i < (n & 15); i++) {
        if (sum & 1)
            sum = sum * 3 + i;
        else
            sum >>= 1;
        if (sum > 1L << 40)
            return -sum;
    }
    return sum;
}

NOINLINE long chooses(long n)
{
    long sum = 0;
    for (long i = 0; i < (n & 3); i++) {
        if (sum & 1) {
            sum += mixes(n + i);
            mixes_calls++;
        } else
            sum += 3;
    }
    return sum;
}

static volatile long sink;

static void both(long n)
{
    sink += mixes(n);
    mixes_calls++;
    sink += chooses(n);
    chooses_calls++;
}

static void handle(int number)
{
    static atomic_long handled;
    (void)number;
    both(handled++);
}

static void *work(void *unused)
{
    ready++;
    for (long i = 0; i < CALLS; i++)
        both(i);
    return unused;
}

int main(void)
{
    pthread_t threads[THREADS];
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &action, NULL);
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, work, NULL))
            return 2;
    while (ready < THREADS)
        ;
    for (int i = 0; i < SIGNALS; i++)
        pthread_kill(threads[i % THREADS], SIGUSR1);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    printf("mixes %ld chooses %ld\n", (long)mixes_calls, (long)chooses_calls);
    return 0;
}
