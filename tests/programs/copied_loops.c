/* `copied_loops`: one thread for each function is in a loop without calls until SIGTERM, while a
 * timer interrupts it. Prints `ready`, and at the end `ok` if each loop has computed what it
 * computes again in as many rounds, otherwise `wrong NAME`. */
#include "gate.h"
#include <sys/time.h>
#include <time.h>

#define LOOP __attribute__((noinline, noclone, noipa))
#define MIX(x) ((x) * 6364136223846793005u + 1442695040888963407u)

static volatile sig_atomic_t ends;
static volatile long ticks;

/* A loop that ends after `most` rounds or when the program ends; `done` is the number of rounds. */
#define GOES_ON(i) ((i) < most && !ends)

/* Few registers: one for the bank is free, or must be saved. */
LOOP static uint64_t few(uint64_t most, uint64_t *done)
{
    uint64_t x = 1, i;
    for (i = 0; GOES_ON(i); i++) {
        x = MIX(x);
        if (x >> 63)
            x ^= x >> 7;
    }
    *done = i;
    return x;
}

/* Local data below the stack pointer, and a loop in the loop. */
LOOP static uint64_t red_zone(uint64_t most, uint64_t *done)
{
    volatile uint32_t words[12];
    uint64_t x = 1, i;
    for (int k = 0; k < 12; k++)
        words[k] = k;
    for (i = 0; GOES_ON(i); i++) {
        for (uint64_t k = 0; k < (x & 7) + 3; k++)
            words[k] += words[(k + 1) % 12] ^ (uint32_t)x;
        x = MIX(x) + words[i % 12];
    }
    *done = i;
    return x;
}

/* A frame with data above the stack pointer. */
LOOP static uint64_t frame(uint64_t most, uint64_t *done)
{
    volatile uint64_t words[64];
    uint64_t x = 1, i;
    for (int k = 0; k < 64; k++)
        words[k] = MIX(k);
    for (i = 0; GOES_ON(i); i++) {
        words[x % 64] += x;
        x = MIX(x) ^ words[(x >> 8) % 64];
        if (x % 3 == 0)
            x += words[5];
        else if (x % 3 == 1)
            x -= words[6];
    }
    *done = i;
    return x;
}

/* Many registers. */
LOOP static uint64_t many(uint64_t most, uint64_t *done)
{
    uint64_t a = 1, b = 2, c = 3, d = 4, e = 5, f = 6, g = 7, h = 8, i;
    for (i = 0; GOES_ON(i); i++) {
        a = MIX(a) ^ b;
        b += c ^ a;
        if (a & 1)
            c = MIX(c) + d;
        d ^= e + b;
        e = (e << 5 | e >> 59) + f;
        if (d & 2)
            f -= g ^ c;
        g += h;
        h = MIX(h) ^ e;
    }
    *done = i;
    return a ^ b ^ c ^ d ^ e ^ f ^ g ^ h;
}

/* Flags that are alive between instructions. */
LOOP static uint64_t flags(uint64_t most, uint64_t *done)
{
    uint64_t x = 1, y = 2, i = 0;
    while (GOES_ON(i)) {
        uint64_t high = 0;
        __asm__ volatile("add %2, %0\n\tjnc 1f\n\tadc $3, %1\n1:\tadc $0, %1\n\tsbb $1, %0"
                         : "+r"(x), "+r"(high)
                         : "r"(y)
                         : "cc");
        y = MIX(y) + high;
        i++;
    }
    *done = i;
    return x ^ y;
}

/* Vectors, which the counting must not touch. */
LOOP static uint64_t reals(uint64_t most, uint64_t *done)
{
    double sum = 1, x = 0.5;
    uint64_t i;
    for (i = 0; GOES_ON(i); i++) {
        x = x * 3.9 * (1 - x);
        if (x > 0.5)
            sum += x;
        else
            sum -= 2 * x;
    }
    *done = i;
    uint64_t bits;
    memcpy(&bits, &sum, 8);
    return bits;
}

static const struct {
    const char *name;
    uint64_t (*run)(uint64_t, uint64_t *);
} LOOPS[] = {{"few", few},   {"red_zone", red_zone}, {"frame", frame},
             {"many", many}, {"flags", flags},       {"reals", reals}};
#define COUNT (sizeof LOOPS / sizeof *LOOPS)

static uint64_t results[COUNT], rounds[COUNT];

__attribute__((noinline, noclone, noipa)) void tick(void)
{
    ticks++;
}

static void handle(int signal)
{
    (void)signal;
    /* Overwrites what is below the red zone. */
    volatile char stack[4096];
    memset((char *)stack, 0x5a, sizeof stack);
    tick();
    stack[0]++;
}

static void *thread(void *at)
{
    uint64_t index = (uint64_t)at;
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR2};
    event._sigev_un._tid = gettid();
    timer_t timer;
    struct itimerspec often = {{0, 700000}, {0, 700000}};
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) < 0 || timer_settime(timer, 0, &often, NULL) < 0)
        gate_fail("timer");
    results[index] = LOOPS[index].run(UINT64_MAX, &rounds[index]);
    timer_delete(timer);
    return NULL;
}

int main(void)
{
    pthread_t all[COUNT];
    await_nothing_yet();
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
    if (sigaction(SIGUSR2, &action, NULL) < 0)
        gate_fail("sigaction");
    for (uint64_t i = 0; i < COUNT; i++)
        if (pthread_create(&all[i], NULL, thread, (void *)i))
            gate_fail("pthread_create");
    say("ready");
    await_test(SIGTERM);
    ends = 1;
    for (uint64_t i = 0; i < COUNT; i++)
        pthread_join(all[i], NULL);
    ends = 0;
    for (uint64_t i = 0; i < COUNT; i++) {
        uint64_t done;
        if (LOOPS[i].run(rounds[i], &done) != results[i] || done != rounds[i]) {
            printf("wrong %s\n", LOOPS[i].name);
            return 1;
        }
    }
    say("ok");
    return 0;
}
