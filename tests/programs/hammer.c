/* Many threads that call one function without a pause while it is repeatedly instrumented and
 * removed. They determine which of their calls must be counted.
 *
 *     hammer THREADS COUNTER_FILE
 *
 * The file's first 64-bit number is the epoch. The test increments it before and after each change
 * of the instrumentation. A call is *sure* if the epoch was even and the same before and after it,
 * and the first byte of `work` differed from its value at the start. It is *unsure* if the epoch
 * changed during the call or was odd. Ends on SIGTERM with one line: `ok sure N unsure N all N`, or
 * `wrong THREAD`. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))
#define MOST 512

struct counter {
    uint64_t sure, unsure, all;
    char pad[40];
};

static _Atomic uint64_t *epoch;
static struct counter counters[MOST];
static atomic_int stop;
static uint8_t original;

NOINLINE uint64_t work(uint64_t x, uint64_t y)
{
    x ^= y >> 7;
    if (x & 64)
        return x * 5 + y;
    x += 0x9e3779b97f4a7c15u;
    return x ^ y;
}

static uint64_t expected(uint64_t x, uint64_t y)
{
    x ^= y >> 7;
    return x & 64 ? x * 5 + y : (x + 0x9e3779b97f4a7c15u) ^ y;
}

static void *thread(void *argument)
{
    struct counter *own = argument;
    volatile const uint8_t *first = (volatile const uint8_t *)(uintptr_t)work;
    uint64_t x = 88172645463325252u + (uint64_t)(own - counters);
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        uint64_t before = atomic_load(epoch);
        uint8_t byte = *first;
        uint64_t r = work(x, x >> 3);
        uint64_t after = atomic_load(epoch);
        if (r != expected(x, x >> 3)) {
            printf("wrong %d\n", (int)(own - counters));
            fflush(stdout);
            _exit(1);
        }
        __atomic_store_n(&own->all, own->all + 1, __ATOMIC_RELAXED);
        if (before != after || before % 2 != 0)
            own->unsure++;
        else if (byte != original)
            own->sure++;
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    return NULL;
}

static void on_term(int signal)
{
    (void)signal;
    atomic_store(&stop, 1);
}

int main(int argc, char **argv)
{
    int threads = argc > 1 ? atoi(argv[1]) : 8;
    int fd = argc > 2 ? open(argv[2], O_RDWR | O_CREAT, 0666) : -1;
    if (threads < 1 || threads > MOST || fd < 0 || ftruncate(fd, 4096) != 0)
        return 2;
    epoch = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (epoch == MAP_FAILED)
        return 2;
    original = *(volatile const uint8_t *)(uintptr_t)work;
    signal(SIGTERM, on_term);
    pthread_t handles[MOST];
    for (int i = 0; i < threads; i++)
        pthread_create(&handles[i], NULL, thread, &counters[i]);
    /* A new thread has all signals blocked. Once it counts, it has started. */
    for (int i = 0; i < threads; i++)
        while (__atomic_load_n(&counters[i].all, __ATOMIC_RELAXED) == 0)
            usleep(100);
    puts("ready");
    fflush(stdout);
    struct counter sum = {0};
    for (int i = 0; i < threads; i++) {
        pthread_join(handles[i], NULL);
        sum.sure += counters[i].sure;
        sum.unsure += counters[i].unsure;
        sum.all += counters[i].all;
    }
    printf("ok sure %llu unsure %llu all %llu\n", (unsigned long long)sum.sure,
           (unsigned long long)sum.unsure, (unsigned long long)sum.all);
    return 0;
}
