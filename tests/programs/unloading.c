/* Loads and unloads copies of a library on several threads without a pause, each time at another
 * address, and calls `work` from there. A reader of the list of libraries finds some that are about
 * to be unloaded.
 *
 *     unloading LIBRARY FOLDER THREADS ROUNDS
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "copy.h"

#define NOINLINE __attribute__((noinline, noclone, noipa))
enum { MOST = 64 };

static char copies[MOST][512];
static long rounds;
static atomic_long calls;

NOINLINE long work(long x)
{
    atomic_fetch_add(&calls, 1);
    return x * 3 + 1;
}

static void *thread(void *argument)
{
    long number = (long)argument;
    unsigned seed = number + 1;
    for (long round = 0; round < rounds; round++) {
        size_t gap = (1 + rand_r(&seed) % 64) * 4096;
        void *before = mmap(NULL, gap, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        void *library = dlopen(copies[number], RTLD_NOW);
        long (*sites)(long (*)(long), long) = library ? dlsym(library, "sites") : NULL;
        if (!sites)
            exit(4);
        sites(work, round);
        dlclose(library);
        munmap(before, gap);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc < 5)
        return 2;
    long threads = atol(argv[3]);
    pthread_t started[MOST];
    if (threads > MOST)
        return 2;
    rounds = atol(argv[4]);
    for (long i = 0; i < threads; i++) {
        snprintf(copies[i], sizeof copies[i], "%s/copy_%ld.so", argv[2], i);
        copy(argv[1], copies[i]);
    }
    for (long i = 0; i < threads; i++)
        if (pthread_create(&started[i], NULL, thread, (void *)i))
            return 2;
    for (long i = 0; i < threads; i++)
        pthread_join(started[i], NULL);
    printf("calls work %ld\n", atomic_load(&calls));
    return 0;
}
