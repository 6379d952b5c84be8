/* The signals with which a program starts.
 *     masked WHAT PROGRAM ARGUMENTS...
 *         executes the program. WHAT is `block`: all signals blocked; `ignore`: SIGTRAP and SIGCHLD
 *         ignored; or `both`
 *     masked show
 *         prints the pending, blocked, ignored and caught signals, calls `work` 3 times, and ends
 *         with status 7 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))

static volatile int worked;

NOINLINE void work(void)
{
    worked++;
}

static int show(void)
{
    char line[256];
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status))
        if ((strncmp(line, "Sig", 3) == 0 && line[3] != 'Q') || strncmp(line, "ShdPnd:", 7) == 0)
            fputs(line, stdout);
    for (int i = 0; i < 3; i++)
        work();
    return status ? 7 : 2;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "show") == 0)
        return show();
    if (argc < 3)
        return 2;
    if (strcmp(argv[1], "ignore") != 0) {
        sigset_t all;
        sigfillset(&all);
        sigprocmask(SIG_SETMASK, &all, NULL);
    }
    if (strcmp(argv[1], "block") != 0) {
        signal(SIGTRAP, SIG_IGN);
        signal(SIGCHLD, SIG_IGN);
    }
    execvp(argv[2], argv + 2);
    return 3;
}
