// Executes itself in children, one after the other. Writes a file with its process id, the ids of
// the children, and how they ended, one per line.
//
//     spawns_checked CHILDREN FILE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile long calls;

__attribute__((noinline)) int work(int i) {
    calls++;
    calls += i;
    return i + 1;
}

int main(int count, char **words) {
    if (count == 2 && !strcmp(words[1], "child")) {
        int sum = 0;
        for (int i = 0; i < 10; i++) sum += work(i);
        return sum == 55 ? 3 : 4;
    }
    if (count < 3) return 2;
    FILE *told = fopen(words[2], "w");
    int good = 0, children = atoi(words[1]);
    fprintf(told, "pid %d\n", getpid());
    fflush(told);
    for (int i = 0; i < children; i++) {
        pid_t pid = fork();
        if (!pid) {
            execl("/proc/self/exe", words[0], "child", (char *)0);
            _exit(5);
        }
        fprintf(told, "pid %d\n", pid);
        int status;
        waitpid(pid, &status, 0);
        good += WIFEXITED(status) && WEXITSTATUS(status) == 3;
        if (!WIFEXITED(status)) fprintf(told, "signal %d\n", WTERMSIG(status));
    }
    fprintf(told, "ok %d of %d\n", good, children);
    fclose(told);
    return 0;
}
