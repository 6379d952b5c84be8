/* Two threads pass a byte back and forth through pipes in `hand_over`, as fast as they can, until
 * SIGTERM. Prints `ready`, ends with `ok`. */
#include "work.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int there[2], back[2];

__attribute__((noinline, noclone, noipa)) void hand_over(int from, int to)
{
    char byte = 0;
    if (read(from, &byte, 1) == 1)
        work(write(to, &byte, 1));
}

static void *other(void *unused)
{
    for (;;)
        hand_over(there[0], back[1]);
    return unused;
}

int main(void)
{
    struct sigaction ending = {.sa_handler = end, .sa_flags = SA_RESTART};
    sigaction(SIGTERM, &ending, NULL);
    pthread_t thread;
    if (pipe(there) != 0 || pipe(back) != 0 || pthread_create(&thread, NULL, other, NULL) != 0)
        return 2;
    puts("ready");
    fflush(stdout);
    if (write(there[1], "x", 1) != 1)
        return 2;
    while (!ends)
        hand_over(back[0], there[1]);
    puts("ok");
    fflush(stdout);
    _Exit(0);
}
