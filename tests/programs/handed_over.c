/* A program whose first thread has ended. Each of the others creates the next one and ends.
 *
 *     handed_over CALLS
 *
 * Prints `ready`; one thread calls `work` now and then. After SIGUSR1 each thread makes CALLS
 * calls, as fast as it can. After SIGUSR2 there is one thread again. SIGTERM ends it: `ok`. */
#define _GNU_SOURCE
#include "work.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static volatile sig_atomic_t hands_over;
static int calls;

static void hand_over(int signal)
{
    hands_over = signal == SIGUSR1;
}

static void check(long x)
{
    if (work(x) != x * 3 + 1)
        abort();
}

static void *thread(void *argument)
{
    pthread_t next;
    pthread_attr_t detached;
    for (; !hands_over && !ends; usleep(300))
        check(3);
    if (ends) {
        puts("ok");
        exit(0);
    }
    for (int i = 0; i < calls; i++)
        check(i);
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    if (pthread_create(&next, &detached, thread, argument))
        abort();
    for (int i = 0; i < calls; i++)
        check(i);
    return NULL;
}

int main(int count, char **given)
{
    pthread_t first;
    calls = count > 1 ? atoi(given[1]) : 10000;
    signal(SIGTERM, end);
    signal(SIGUSR1, hand_over);
    signal(SIGUSR2, hand_over);
    puts("ready");
    fflush(stdout);
    if (pthread_create(&first, NULL, thread, NULL))
        return 2;
    pthread_exit(NULL);
}
