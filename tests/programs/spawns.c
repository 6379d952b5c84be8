/* Makes children in its own memory, which call functions that it calls as well: `spawns HOW`, by posix_spawn (`spawn`,
 * `spawnp`), by popen and system (`shell`) or by vfork (`vfork`). Prints its own calls of `dup2`, which children of the first
 * two kinds make three each, of `execve`, which all make, and of `tick`. */
#define _GNU_SOURCE
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))
enum { CHILDREN = 50 };

extern char **environ;
static volatile long ticks, copies;

NOINLINE long tick(long x)
{
    ticks++;
    return x * 3 + 1;
}

static int copy(int to)
{
    copies++;
    return dup2(1, to);
}

static int ended(pid_t child)
{
    int status = 0;
    if (waitpid(child, &status, 0) != child)
        return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int spawn(const char *how)
{
    char *arguments[] = {"true", NULL};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    for (int i = 0; i < 3; i++)
        posix_spawn_file_actions_adddup2(&actions, 1, 40 + i);
    pid_t child = -1;
    int failed = strcmp(how, "spawnp") == 0
                     ? posix_spawnp(&child, "true", &actions, NULL, arguments, environ)
                     : posix_spawn(&child, "/bin/true", &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    return failed ? -1 : ended(child);
}

static int shell(void)
{
    FILE *output = popen("true", "r");
    return output && pclose(output) == 0 ? system("true") : -1;
}

static int fork_in_memory(int number)
{
    char *arguments[] = {"true", NULL};
    volatile int way = number;
    pid_t child = vfork();
    if (child == 0) {
        dup2(1, 40);
        if (way % 2)
            execve("/bin/true", arguments, environ);
        _exit(0);
    }
    return ended(child);
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "spawn";
    int wrong = 0;
    long sum = 0;
    for (int i = 0; i < CHILDREN; i++) {
        sum += tick(i);
        copy(50 + i % 3);
        wrong |= strcmp(how, "vfork") == 0 ? fork_in_memory(i) : strcmp(how, "shell") == 0 ? shell() : spawn(how);
        sum += tick(i);
    }
    for (int i = 0; i < 1000; i++)
        sum += tick(i);
    printf("calls tick %ld\ncalls dup2 %ld\ncalls execve 0\nsum %ld wrong %d\n", ticks, copies, sum, wrong);
    return wrong != 0;
}
