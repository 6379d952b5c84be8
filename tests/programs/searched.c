/* Programs with a bottleneck that a search must find without a name.
 *
 *     searched lookup     `find_entry` is a utility with many callers; only `resolve_bodies` has a
 *                         long table
 *     searched barrier    three threads wait for each other in `synchronize`, called from three
 *                         phases; one phase, `assemble`, has far more work on one thread
 *     searched tiny       `crunch` constantly calls `tiny`, which costs almost nothing each time
 *     searched idle       almost no load: `serve` waits for work in poll(2), and `handle` does it
 *     searched sparse     as `idle`, with a tenth of the load
 *     searched order      `order` calls itself twice, twelve levels deep, for `rank_all`; `busy`
 *                         does the work
 *     searched stuck      all of it within one call of `forever` that began before `ready`
 *
 * Prints `ready`; on SIGTERM the calls of `find_entry` by caller, and `ok`. */
#define _GNU_SOURCE
#include "work.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))

enum { ENTRIES = 16384, SHORT = 8, THREADS = 3 };

static long table[ENTRIES];
static volatile long sink;
static long calls[3];

NOINLINE long find_entry(const long *entries, int count, long key)
{
    for (int i = 0; i < count; i++)
        if (entries[i] == key)
            return i;
    return -1;
}

NOINLINE void resolve_entries(void)
{
    for (int i = 0; i < 20; i++, calls[0]++)
        sink += find_entry(table, SHORT, i);
}

NOINLINE void resolve_names(void)
{
    for (int i = 0; i < 20; i++, calls[1]++)
        sink += find_entry(table, SHORT, i + 1);
}

NOINLINE void resolve_bodies(void)
{
    for (int i = 0; i < 20; i++, calls[2]++)
        sink += find_entry(table, ENTRIES, ENTRIES + i);
}

NOINLINE void load_module(void)
{
    resolve_entries();
    resolve_names();
    resolve_bodies();
    sink++;
}

static pthread_barrier_t barrier;

NOINLINE void synchronize(void)
{
    pthread_barrier_wait(&barrier);
    sink++;
}

NOINLINE void busy(long rounds)
{
    for (long i = 0; i < rounds; i++)
        sink += i;
}

NOINLINE void scatter(void)
{
    busy(20000);
    synchronize();
    sink++;
}

NOINLINE void gather(void)
{
    busy(20000);
    synchronize();
    sink++;
}

NOINLINE void assemble(long rounds)
{
    busy(rounds);
    synchronize();
    sink++;
}

static void *solve(void *first)
{
    for (;;) {
        scatter();
        assemble(first ? 10000000 : 20000);
        gather();
    }
    return NULL;
}

NOINLINE void tiny(void)
{
    sink++;
}

NOINLINE void crunch(void)
{
    for (int i = 0; i < 100000; i++)
        tiny();
}

NOINLINE void forever(void)
{
    while (!ends)
        sink++;
}

/* Rounds for one millisecond of processor time. */
static long of_handle = 200000;

NOINLINE void handle(void)
{
    for (long i = 0; i < of_handle; i++)
        sink += i;
}

static void calibrate(void)
{
    struct timespec begin, end;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    handle();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    long ns = (end.tv_sec - begin.tv_sec) * 1000000000 + end.tv_nsec - begin.tv_nsec;
    of_handle = of_handle * 1000000 / (ns < 1000 ? 1000 : ns);
}

NOINLINE void order(int items)
{
    if (items == 1) {
        busy(2000);
    } else {
        order(items / 2);
        order(items - items / 2);
    }
    sink++;
}

NOINLINE void rank_all(void)
{
    order(4096);
    sink++;
}

NOINLINE void serve(int pause)
{
    poll(NULL, 0, pause);
    handle();
    sink++;
}

int main(int argc, char **argv)
{
    const char *kind = argc > 1 ? argv[1] : "lookup";
    struct sigaction ending = {.sa_handler = end};
    sigaction(SIGTERM, &ending, NULL);
    for (int i = 0; i < ENTRIES; i++)
        table[i] = i;
    calibrate();
    int threads = strcmp(kind, "barrier") == 0 ? THREADS : 0, got;
    pthread_t handles[THREADS];
    pthread_barrier_init(&barrier, NULL, THREADS);
    sigset_t awaited;
    sigemptyset(&awaited);
    sigaddset(&awaited, SIGTERM);
    if (threads)
        pthread_sigmask(SIG_BLOCK, &awaited, NULL);
    for (long i = 0; i < threads; i++)
        pthread_create(&handles[i], NULL, solve, i == 0 ? handles : NULL);
    puts("ready");
    fflush(stdout);
    if (threads)
        ends = sigwait(&awaited, &got) == 0;
    if (strcmp(kind, "stuck") == 0)
        forever();
    while (!ends)
        if (strcmp(kind, "tiny") == 0)
            crunch();
        else if (strcmp(kind, "idle") == 0)
            serve(20);
        else if (strcmp(kind, "sparse") == 0)
            serve(200);
        else if (strcmp(kind, "order") == 0)
            rank_all();
        else
            load_module();
    printf("calls resolve_entries %ld\ncalls resolve_names %ld\ncalls resolve_bodies %ld\n", calls[0],
           calls[1], calls[2]);
    puts("ok");
    return 0;
}
