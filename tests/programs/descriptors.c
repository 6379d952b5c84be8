/* A program whose first thread relies on getting the lowest free descriptor, and closes all
 * descriptors that it does not know. Meanwhile other threads start, call `work` and end.
 *
 *     descriptors ROUNDS
 *
 * Prints `ready`. On SIGUSR1 the first thread runs ROUNDS rounds. Then it prints `calls work N`;
 * `other N`, how often it got an unexpected descriptor; `closed N`, how often its own descriptor
 * had been closed; and `ok`. */
#define _GNU_SOURCE
#include "work.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { FIRST = 3 };

static volatile sig_atomic_t begins;
static atomic_int enough;
static atomic_ulong calls;

static void begin(int signal)
{
    (void)signal;
    begins = 1;
}

static void *call(void *argument)
{
    work((long)argument);
    atomic_fetch_add(&calls, 1);
    return NULL;
}

static void *come_and_go(void *argument)
{
    for (long i = 0; !atomic_load(&enough); i++) {
        pthread_t thread;
        pthread_attr_t attributes;
        pthread_attr_init(&attributes);
        /* A different size each time, so that no thread reuses the stack of an ended one. */
        pthread_attr_setstacksize(&attributes, 65536 + 4096 * (size_t)(i % 64));
        if (pthread_create(&thread, &attributes, call, (void *)i) || pthread_join(thread, NULL))
            abort();
        pthread_attr_destroy(&attributes);
    }
    return argument;
}

int main(int count, char **given)
{
    if (count < 2)
        return 2;
    signal(SIGUSR1, begin);
    pthread_t others;
    if (pthread_create(&others, NULL, come_and_go, NULL))
        return 2;
    puts("ready");
    fflush(stdout);
    while (!begins)
        usleep(1000);
    long rounds = atol(given[1]), other = 0, closed = 0;
    for (long i = 0; i < rounds; i++) {
        syscall(SYS_close_range, FIRST, ~0U, 0);
        int own = open("/dev/null", O_RDWR);
        other += own != FIRST;
        for (int looks = 0; looks < 20; looks++)
            if (fcntl(own, F_GETFD) < 0) {
                closed++;
                break;
            }
        close(own);
    }
    atomic_store(&enough, 1);
    pthread_join(others, NULL);
    printf("calls work %lu\nother %ld\nclosed %ld\nok\n", atomic_load(&calls), other, closed);
    return 0;
}
