/* Spends its time in known places. `suggested cpu`: in `hot` and, a third as much, in `warm`, both
 * called by `mixed`. `suggested lock`: two threads contend for a lock in `update_shared` while its
 * holder sleeps, and a third sleeps in `rest` for a short time. `suggested idle`: nowhere.
 * `suggested bursts`: as `cpu`, with many short waits in between. `suggested generated`: in code
 * that it writes itself, at many addresses. Prints `ready`, ends on SIGTERM. */
#define _GNU_SOURCE
#include "work.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile long sink;

/* Takes as long as a multiplication, on every processor and wherever its loop is aligned. A sum in
 * memory does not. */
#define ROUND(x) __asm__ volatile("imul %0, %0" : "+r"(x))

NOINLINE void hot(long n)
{
    long x = n;
    for (long i = 0; i < 3 * n; i++)
        ROUND(x);
    sink += x;
}

NOINLINE void warm(long n)
{
    long x = n;
    for (long i = 0; i < n; i++)
        ROUND(x);
    sink += x;
}

NOINLINE void mixed(void)
{
    hot(40000);
    warm(40000);
}

static void nap(long ns)
{
    struct timespec t = {0, ns};
    nanosleep(&t, NULL);
}

NOINLINE void update_shared(void)
{
    pthread_mutex_lock(&lock);
    nap(3000000);
    sink++;
    pthread_mutex_unlock(&lock);
}

NOINLINE void rest(void)
{
    nap(1000000);
    sink++;
}

static void *contend(void *unused)
{
    while (!ends)
        update_shared();
    return unused;
}

static void *sometimes(void *unused)
{
    while (!ends) {
        rest();
        warm(2000000);
    }
    return unused;
}

/* Code that counts down, with many instructions per round. */
static void (*generate(void))(long)
{
    enum { SIZE = 4096, NOPS = 2000 };
    unsigned char *code = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (code == MAP_FAILED)
        return NULL;
    memset(code, 0x90, NOPS);
    /* dec rdi; jnz to the beginning; ret */
    const unsigned char end[] = {0x48, 0xff, 0xcf, 0x0f, 0x85, 0, 0, 0, 0, 0xc3};
    const int back = -(NOPS + 9);
    memcpy(code + NOPS, end, sizeof end);
    memcpy(code + NOPS + 5, &back, sizeof back);
    mprotect(code, SIZE, PROT_READ | PROT_EXEC);
    return (void (*)(long))code;
}

/* Computes for a while, and is then switched often. */
static void bursts(void)
{
    for (int i = 0; i < 20; i++)
        mixed();
    for (int i = 0; i < 2000; i++)
        nap(1000);
}

int main(int argc, char **argv)
{
    const char *kind = argc > 1 ? argv[1] : "cpu";
    struct sigaction ending = {.sa_handler = end};
    sigaction(SIGTERM, &ending, NULL);
    /* Created before `ready`, so that the set of threads does not change later. */
    int count = strcmp(kind, "lock") == 0 ? 3 : 0;
    pthread_t threads[3];
    for (int i = 0; i < count; i++)
        pthread_create(&threads[i], NULL, i < 2 ? contend : sometimes, NULL);
    void (*generated)(long) = generate();
    if (!generated)
        return 2;
    puts("ready");
    fflush(stdout);
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    while (!ends)
        if (strcmp(kind, "cpu") == 0)
            mixed();
        else if (strcmp(kind, "generated") == 0)
            generated(1000);
        else if (strcmp(kind, "bursts") == 0)
            bursts();
        else
            pause();
    puts("ok");
    return 0;
}
