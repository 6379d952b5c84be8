/* A function whose counters are better at other places than expected: what is taken most often is
   out of line. Between its steps it waits in calls.

   `exchanges ROUNDS THREADS INTERVAL`: each thread makes ROUNDS times 64 calls, or goes on until
   SIGTERM if that is 0. A timer signal comes each INTERVAL microseconds, if that is not 0, and its
   handler makes 64 calls. Prints `ready`, and at the end `ok` with the number of calls. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>

static long rounds;
static volatile sig_atomic_t ends;
static long calls;

__attribute__((noinline)) static unsigned wait_a_little(unsigned value)
{
    for (int i = 0; i < 60; i++)
        __asm__ volatile("" : "+r"(value));
    return value * 1664525 + 1013904223;
}

__attribute__((noinline)) static unsigned rarely(unsigned value)
{
    __asm__ volatile("" : "+r"(value));
    return value ^ 0x55;
}

__attribute__((noinline)) unsigned decides(unsigned value)
{
    for (int step = 0; step < 16; step++) {
        value = wait_a_little(value);
        unsigned of = value >> 24;
        if (__builtin_expect(of != 3, 0)) {
            if (__builtin_expect(of & 64, 0))
                value += 3;
            if (__builtin_expect(of >= 8, 0)) {
                value ^= of;
                if (__builtin_expect(of != 200, 0))
                    value += 7;
                else
                    value = rarely(value);
            }
        } else {
            value = rarely(value) + rarely(step);
        }
        switch (of & 15) {
        case 0: value += 11; break;
        case 1: value ^= 12; break;
        case 2: value = rarely(value); break;
        case 3: value -= 9; break;
        default: value = value * 3 + 1;
        }
    }
    return value;
}

/* The same ways each time. */
static void round_of_calls(void)
{
    for (unsigned number = 0; number < 64; number++)
        decides(number * 2654435761u);
    __atomic_fetch_add(&calls, 64, __ATOMIC_RELAXED);
}

static void *thread(void *unused)
{
    (void)unused;
    for (long round = 0; rounds ? round < rounds : !ends; round++)
        round_of_calls();
    return NULL;
}

static void on_alarm(int signal)
{
    (void)signal;
    round_of_calls();
}

static void on_term(int signal)
{
    (void)signal;
    ends = 1;
}

int main(int argc, char **argv)
{
    rounds = argc > 1 ? atol(argv[1]) : 1;
    int threads = argc > 2 ? atoi(argv[2]) : 1;
    int interval = argc > 3 ? atoi(argv[3]) : 0;
    pthread_t all[64];
    struct itimerval often = {{0, interval}, {0, interval}};
    signal(SIGALRM, on_alarm);
    signal(SIGTERM, on_term);
    puts("ready");
    fflush(stdout);
    setitimer(ITIMER_REAL, &often, NULL);
    for (int i = 0; i < threads; i++)
        pthread_create(&all[i], NULL, thread, NULL);
    for (int i = 0; i < threads; i++)
        pthread_join(all[i], NULL);
    signal(SIGALRM, SIG_IGN);
    printf("ok %ld\n", __atomic_load_n(&calls, __ATOMIC_RELAXED));
    return 0;
}
