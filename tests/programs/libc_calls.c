/* Threads that call malloc and free, memcpy, and pthread_mutex_lock a known number of times, each
 * through a separate function. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))
enum { THREADS = 4, ROUNDS = 20000, LIVE = 64, LARGE = 4096 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static unsigned long total;

/* Prevents tail calls, so that each function has a frame during its calls. */
#define STAYS(x) __asm__ volatile("" : "+r"(x))

NOINLINE static char *allocates(size_t size)
{
    char *block = malloc(size);
    STAYS(block);
    return block;
}

NOINLINE static void frees(char *block)
{
    free(block);
    __asm__ volatile("");
}

NOINLINE static void *copies(void *to, const void *from, size_t size)
{
    void *(*volatile copy)(void *, const void *, size_t) = memcpy;
    void *back = copy(to, from, size);
    STAYS(back);
    return back;
}

NOINLINE static void locks(void)
{
    int error = pthread_mutex_lock(&mutex);
    STAYS(error);
    if (error)
        abort();
}

static void *work(void *argument)
{
    static const char zero[LARGE];
    uint32_t seed = (uint32_t)(uintptr_t)argument;
    char *live[LIVE] = {NULL};
    unsigned long own = 0;
    for (int i = 0; i < ROUNDS; i++) {
        seed = seed * 1664525 + 1013904223;
        char **block = &live[seed >> 26];
        /* The smallest size fits in the tail of its block, the largest exceeds what threads cache.
         */
        size_t size = 16 + (seed >> 8) % (i % 50 ? 500 : LARGE - 16);
        if (*block)
            frees(*block);
        *block = allocates(size);
        if (copies(*block, zero, size) != *block)
            abort();
        **block = (char)(size | 1);
        for (size_t at = 0; at < size; at += 97)
            own += (unsigned char)(*block)[at];
        locks();
        total += own & 0xff;
        pthread_mutex_unlock(&mutex);
    }
    for (int i = 0; i < LIVE; i++)
        if (live[i])
            frees(live[i]);
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, (void *)(i + 1));
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    long calls = (long)THREADS * ROUNDS;
    printf("calls malloc %ld\ncalls free %ld\ncalls memcpy %ld\n", calls, calls, calls);
    printf("calls pthread_mutex_lock %ld\ntotal %lu\n", calls, total);
    return 0;
}
