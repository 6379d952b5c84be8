/* Creates threads that never reuse memory of another one: stacks and control blocks are always at
 * new addresses.
 *
 *     thread_generations after COUNT    one after another
 *     thread_generations alive COUNT    all at once: each calls `work`, waits for all others, and
 *                                       calls it again
 *     thread_generations forever        a few at a time until SIGTERM; lines give the number
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))
enum { STACK = 32768, PLACES = 120000, BATCH = 8, TOLD = 2000 };

static char *stacks;
static pthread_barrier_t all;
static atomic_long calls, sums;
static atomic_int stop;

NOINLINE long work(long x) { return x * 3 + 1; }

NOINLINE long around(long x)
{
    long y = work(x) + 1;
    return y + work(y);
}

static void *thread(void *argument)
{
    long sum = (long)argument;
    for (int k = 0; k < 3; k++)
        sum = sum * 5 + work(sum + k);
    sum = sum * 5 + around(sum);
    atomic_fetch_add(&calls, 5);
    atomic_fetch_add(&sums, sum);
    return NULL;
}

static void *thread_among_all(void *argument)
{
    thread(argument);
    pthread_barrier_wait(&all);
    return thread(argument);
}

static pthread_t start(long number, void *(*body)(void *))
{
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, stacks + number % PLACES * STACK, STACK);
    pthread_t started;
    int error = pthread_create(&started, &attributes, body, (void *)number);
    if (error) {
        fprintf(stderr, "thread %ld: %s\n", number, strerror(error));
        exit(2);
    }
    return started;
}

static void end(long number, pthread_t thread)
{
    pthread_join(thread, NULL);
    madvise(stacks + number % PLACES * STACK, STACK, MADV_DONTNEED);
}

static void on_term(int signal)
{
    (void)signal;
    atomic_store(&stop, 1);
}

int main(int argc, char **argv)
{
    const char *kind = argc > 1 ? argv[1] : "";
    long count = argc > 2 ? atol(argv[2]) : 0;
    stacks = mmap(NULL, (size_t)PLACES * STACK, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stacks == MAP_FAILED || count > PLACES)
        return 2;
    if (!strcmp(kind, "after")) {
        for (long i = 0; i < count; i++)
            end(i, start(i, thread));
    } else if (!strcmp(kind, "alive")) {
        pthread_t *threads = calloc(count, sizeof *threads);
        pthread_barrier_init(&all, NULL, count);
        for (long i = 0; i < count; i++)
            threads[i] = start(i, thread_among_all);
        for (long i = 0; i < count; i++)
            end(i, threads[i]);
    } else {
        signal(SIGTERM, on_term);
        puts("ready");
        for (long made = 0; !atomic_load(&stop); made += BATCH) {
            pthread_t threads[BATCH];
            for (int i = 0; i < BATCH; i++)
                threads[i] = start(made + i, thread);
            for (int i = 0; i < BATCH; i++)
                end(made + i, threads[i]);
            if (made % TOLD == 0) {
                printf("made %ld\n", made);
                fflush(stdout);
            }
        }
        puts("ok");
        return 0;
    }
    long made = atomic_load(&calls);
    printf("calls work %ld\ncalls around %ld\nsum %lx\n", made, made / 5, atomic_load(&sums));
    return 0;
}
