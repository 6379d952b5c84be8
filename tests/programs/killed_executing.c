/* Children that get a signal while they execute another program.
 *
 * usage: killed_executing CHILDREN SIGNAL
 *        killed_executing once
 *
 * Each child executes this program, calls `work` once there, and ends. A child that the signal
 * stops is continued a moment later. Prints `work N`, the number of calls.
 *
 * With `once`, it only calls `work` itself. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))

static long *calls;

NOINLINE void work(void)
{
    __atomic_fetch_add(calls, 1, __ATOMIC_RELAXED);
}

static void share(int memory)
{
    calls = mmap(NULL, sizeof *calls, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    if (calls == MAP_FAILED)
        _exit(2);
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "once") == 0) {
        static long own;
        calls = &own;
        work();
        return 0;
    }
    if (argc < 3)
        return 2;
    if (strcmp(argv[1], "child") == 0) {
        share(atoi(argv[2]));
        work();
        return 0;
    }
    long children = atol(argv[1]);
    int signal = atoi(argv[2]), memory = memfd_create("calls", 0);
    char number[16];
    if (memory < 0 || ftruncate(memory, sizeof *calls) != 0)
        return 2;
    share(memory);
    snprintf(number, sizeof number, "%d", memory);
    for (long i = 0; i < children; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            execl("/proc/self/exe", "killed_executing", "child", number, (char *)NULL);
            _exit(3);
        }
        usleep(rand() % 20000);
        kill(pid, signal);
        if (signal == SIGSTOP) {
            usleep(2000);
            kill(pid, SIGCONT);
        }
        int status;
        if (waitpid(pid, &status, 0) != pid || (WIFEXITED(status) && WEXITSTATUS(status) != 0))
            return 4;
    }
    printf("work %ld\n", *calls);
    return 0;
}
