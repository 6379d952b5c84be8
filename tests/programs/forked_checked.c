/* Forks as often as its argument says. Each child calls `work` and ends with status 7. Prints the
 * processes and the status of each child, into a file if one is named. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))

NOINLINE static int work(int n) { return n * 3 + 1; }

int main(int argc, char **argv)
{
    int children = argc > 1 ? atoi(argv[1]) : 1, bad = 0;
    if (argc > 2 && freopen(argv[2], "w", stdout) == NULL)
        return 1;
    printf("%d", (int)getpid());
    fflush(stdout);
    for (int i = 0; i < children; i++) {
        int status = 0;
        pid_t pid = fork();
        if (pid == 0)
            _exit(work(2));
        printf(" %d", (int)pid);
        fflush(stdout);
        if (work(i) < 0 || waitpid(pid, &status, 0) != pid || status != 7 << 8) {
            printf(" bad %#x", status);
            bad++;
        }
    }
    printf("\nok %d of %d\n", children - bad, children);
    return 0;
}
