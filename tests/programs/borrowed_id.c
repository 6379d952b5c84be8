/* A daemon of root's that temporarily has a user's effective id, as file servers do.
 *
 *     borrowed_id UID
 *
 * Prints `ready` with that id. SIGUSR1 restores its own id, and it prints `root`. SIGTERM ends it:
 * `calls work N`, `ok`. */
#define _GNU_SOURCE
#include "work.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static volatile sig_atomic_t gives_back;

static void give_back(int signal)
{
    (void)signal;
    gives_back = 1;
}

int main(int count, char **given)
{
    if (count < 2 || seteuid((uid_t)atoi(given[1])))
        return 2;
    signal(SIGTERM, end);
    signal(SIGUSR1, give_back);
    setvbuf(stdout, NULL, _IOLBF, 0);
    puts("ready");
    long calls = 0, result = 0;
    for (; !ends; usleep(500), calls++) {
        result = work(result);
        if (gives_back) {
            gives_back = 0;
            if (seteuid(0))
                return 3;
            puts("root");
        }
    }
    printf("calls work %ld\nok %ld\n", calls, result);
    return 0;
}
