/* Calls `work` until SIGTERM, after it has written a title over its arguments, as setproctitle(3)
 * does:
 *
 *     within    shorter than the arguments, and the rest of them is zeroes
 *     spaces    spaces instead of zeroes
 *     beyond    longer, into the environment
 *
 * Takes any further arguments. Prints `ready`, and `ok` at its end. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))

static volatile sig_atomic_t over;

static void end(int signal)
{
    (void)signal;
    over = 1;
}

NOINLINE long work(long n) { return n * 3 + 1; }

int main(int argc, char **argv, char **environment)
{
    static const char title[] = "titled: worker *:6379";
    char mode = argv[1][0];
    char *area = argv[0];
    size_t size = (size_t)(argv[argc - 1] + strlen(argv[argc - 1]) + 1 - area);
    if (mode == 'b') {
        char *last = environment[0];
        for (char **at = environment; *at != NULL; at++)
            last = *at;
        size = (size_t)(last + strlen(last) + 1 - area);
        memset(area, 'x', size - 1);
        area[size - 1] = 0;
    } else {
        memset(area, mode == 's' ? ' ' : 0, size - 1);
        area[size - 1] = 0;
    }
    memcpy(area, title, mode == 'w' ? sizeof title : sizeof title - 1);
    signal(SIGTERM, end);
    puts("ready");
    fflush(stdout);
    long sum = 0;
    while (!over) {
        sum += work(sum);
        usleep(1000);
    }
    puts("ok");
    return sum == 0;
}
