/* A program that changes to a root without /proc before its first call.
 *
 * usage: chrooted FOLDER
 *
 * There it calls `work` 100 times, and its child 10 times. Prints `calls work N`. */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))

static volatile int worked;

NOINLINE void work(void)
{
    worked++;
}

int main(int argc, char **argv)
{
    if (argc < 2 || chroot(argv[1]) != 0 || chdir("/") != 0)
        return 2;
    for (int i = 0; i < 100; i++)
        work();
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 10; i++)
            work();
        _exit(0);
    }
    int status;
    if (waitpid(child, &status, 0) != child || status != 0)
        return 3;
    printf("calls work %d\n", worked + 10);
    return 0;
}
