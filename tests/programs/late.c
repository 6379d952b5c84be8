/* Loads a library and calls `gone_work` in it until SIGTERM, or a given number of times.
 *
 *     late LIBRARY [TIMES]
 *
 * Prints `ready` when loaded and `ok` at the end. */
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static volatile sig_atomic_t stop;

static void on_term(int signal)
{
    (void)signal;
    stop = 1;
}

int main(int argc, char **argv)
{
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
    long (*work)(long) = library ? (long (*)(long))dlsym(library, "gone_work") : NULL;
    if (!work) {
        fprintf(stderr, "late: no gone_work\n");
        return 2;
    }
    signal(SIGTERM, on_term);
    puts("ready");
    fflush(stdout);
    long expected = 0, sum = 0, times = argc > 2 ? atol(argv[2]) : -1;
    for (long i = 0; !stop && i != times; i++) {
        sum += work(i);
        expected += i * 3 + 1;
        struct timespec pause = {0, 1000000};
        nanosleep(&pause, NULL);
    }
    puts(sum == expected ? "ok" : "wrong");
    return sum != expected;
}
