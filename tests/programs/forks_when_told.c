/* On SIGUSR1 forks a child that calls `work` 20 times, and prints `children N`. Prints `ok` on
 * SIGTERM. */
#include "work.h"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CALLS = 20 };

int main(void)
{
    sigset_t all, told;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    sigemptyset(&told);
    sigaddset(&told, SIGUSR1);
    sigaddset(&told, SIGTERM);
    puts("ready");
    fflush(stdout);
    int signal = 0;
    for (int children = 0; sigwait(&told, &signal) == 0 && signal == SIGUSR1;) {
        pid_t child = fork();
        if (child == 0) {
            long sum = 0;
            for (int i = 0; i < CALLS; i++)
                sum += work(sum);
            _exit(sum == 0);
        }
        children += waitpid(child, NULL, 0) == child;
        printf("children %d\n", children);
        fflush(stdout);
    }
    puts("ok");
    return 0;
}
