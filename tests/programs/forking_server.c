/* Forks a child every 2 ms, which calls `work` 20 times and ends. Ends on SIGTERM with
 * `ok children N`. */
#define _GNU_SOURCE
#include "work.h"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CALLS = 20 };

int main(void)
{
    signal(SIGTERM, end);
    puts("ready");
    fflush(stdout);
    long children = 0, sum = 0;
    while (!ends) {
        pid_t child = fork();
        if (child == 0) {
            for (int i = 0; i < CALLS; i++)
                sum += work(sum);
            _exit(0);
        }
        children += child > 0;
        usleep(2000);
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
    }
    while (wait(NULL) > 0)
        ;
    printf("ok children %ld\n", children);
    return 0;
}
