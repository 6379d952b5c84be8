/* `work` is called by two busy threads, by threads that come and go, and by the handler of a timer
 * signal at up to 5 kHz. On SIGTERM the program prints its own numbers and ends. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/time.h>

#define NOINLINE __attribute__((noinline))

static _Atomic uint64_t calls, handled, sink;
static atomic_int stop;

NOINLINE uint64_t work(uint64_t x)
{
    calls++;
    return x * 2654435761u + (x >> 7);
}

static void on_alarm(int signal)
{
    (void)signal;
    handled++;
    sink += work(handled);
}

static void on_term(int signal)
{
    (void)signal;
    stop = 1;
}

static void *busy(void *unused)
{
    uint64_t sum = 0;
    while (!stop)
        sum += work(sum);
    sink += sum;
    return unused;
}

static void *short_lived(void *unused)
{
    for (uint64_t i = 0; i < 50; i++)
        sink += work(i);
    return unused;
}

static void *churn(void *unused)
{
    pthread_t threads[4];
    while (!stop) {
        for (int i = 0; i < 4; i++)
            pthread_create(&threads[i], NULL, short_lived, NULL);
        for (int i = 0; i < 4; i++)
            pthread_join(threads[i], NULL);
    }
    return unused;
}

int main(void)
{
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    signal(SIGTERM, on_term);
    struct itimerval timer = {{0, 200}, {0, 200}};
    setitimer(ITIMER_REAL, &timer, NULL);
    pthread_t threads[3];
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, busy, NULL);
    pthread_create(&threads[2], NULL, churn, NULL);
    puts("ready");
    fflush(stdout);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    printf("ok calls %lu handled %s\n", (unsigned long)calls, handled > 0 ? "some" : "none");
    return 0;
}
