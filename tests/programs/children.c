/* Children that run in their parent's memory, or in a copy of it, and call the same functions as
 * the parent: by vfork, by posix_spawn with actions (the child calls dup2 and execve), by system
 * and popen (the shell), by fork. Prints the parent's calls as `calls NAME N`, without those of the
 * children. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
enum { ROUNDS = 40 };

#define NOINLINE __attribute__((noinline, noclone, noipa))

static volatile long ticks;

NOINLINE long tick(long x)
{
    return x + 1;
}

static long own(long x)
{
    ticks++;
    return tick(x);
}

static int status_of(pid_t child)
{
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child)
        return 1000;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 2000;
}

NOINLINE int by_vfork(int i, char *program)
{
    pid_t child = vfork();
    if (child == 0) {
        for (int k = 0; k < i % 5; k++)
            tick(k);
        dup2(1, 1);
        if (i % 2)
            execl(program, program, "child", (char *)NULL);
        _exit(3);
    }
    own(i);
    return status_of(child);
}

NOINLINE int by_spawn(char *program)
{
    char *arguments[] = {program, "child", NULL};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, 1, 1);
    posix_spawn_file_actions_adddup2(&actions, 2, 2);
    pid_t child = -1;
    if (posix_spawn(&child, program, &actions, NULL, arguments, environ) != 0)
        child = -1;
    posix_spawn_file_actions_destroy(&actions);
    own(1);
    return status_of(child);
}

NOINLINE int by_fork(void)
{
    pid_t child = fork();
    if (child == 0) {
        for (int k = 0; k < 3; k++)
            tick(k);
        dup2(1, 1);
        _exit(3);
    }
    own(2);
    return status_of(child);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "child") == 0)
        return 3;
    long dups = 0, sum = 0;
    for (int i = 0; i < ROUNDS; i++) {
        own(i);
        sum += by_vfork(i, argv[0]);
        sum += by_spawn(argv[0]);
        sum += by_fork();
        sum += WEXITSTATUS(system("exit 3"));
        FILE *piped = popen("exit 3", "r");
        sum += WEXITSTATUS(pclose(piped));
        dup2(1, 1);
        dups++;
    }
    printf("calls tick %ld\ncalls dup2 %ld\ncalls by_vfork %d\ncalls by_spawn %d\ncalls by_fork %d\nsum %ld\n", ticks, dups,
           ROUNDS, ROUNDS, ROUNDS, sum);
    return sum == 15 * ROUNDS ? 0 : 1;
}
