// Replaces itself several times by executing a file, and calls `work` before and after.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/syscall.h>
#include <unistd.h>

extern char **environ;
static volatile int n;
static char **arguments;

__attribute__((noinline)) void work(int i) { n += i; }

static void *in_thread(void *unused) {
    execv("/proc/self/exe", arguments);
    return unused;
}

static void again(const char *how) {
    if (!strcmp(how, "exe")) execv("/proc/self/exe", arguments);
    if (!strcmp(how, "fixed")) {
        personality(personality(0xffffffff) | ADDR_NO_RANDOMIZE);
        execv("/proc/self/exe", arguments);
    }
    if (!strcmp(how, "path")) {
        // The first names do not exist, so several calls of execve fail.
        char path[5000];
        char *slash = strrchr(strcpy(path, arguments[0]), '/');
        *slash = 0;
        char folders[6000];
        snprintf(folders, sizeof folders, "/no/such:/nor/this:%s", path);
        setenv("PATH", folders, 1);
        execvp(slash + 1, arguments);
    }
    if (!strcmp(how, "descriptor")) fexecve(open("/proc/self/exe", O_RDONLY | O_CLOEXEC), arguments, environ);
    if (!strcmp(how, "thread")) {
        pthread_t thread;
        pthread_create(&thread, 0, in_thread, 0);
        pthread_join(thread, 0);
    }
    // Without the C library.
    if (!strcmp(how, "raw")) {
        long result = SYS_execve;
        __asm__ volatile("syscall" : "+a"(result) : "D"("/proc/self/exe"), "S"(arguments), "d"(environ) : "rcx", "r11", "memory");
    }
    if (!strcmp(how, "other")) execl("/bin/sleep", "sleep", "0.2", (char *)0);
    _exit(9);
}

// HOW TIMES CALLS: the number of calls before each exec and after the last one.
int main(int count, char **words) {
    if (count < 4) return 8;
    arguments = words;
    const char *done = getenv("TIMES");
    int times = done ? atoi(done) : 0;
    int calls = atoi(words[3]);
    if (times < atoi(words[2])) {
        for (int i = 0; i < calls * times; i++) work(i);
        if (getenv("GATE") && puts("ready") >= 0 && !fflush(stdout))
            while (access(getenv("GATE"), F_OK)) usleep(5000);
        char text[20];
        snprintf(text, sizeof text, "%d", times + 1);
        setenv("TIMES", text, 1);
        // A call that fails: there is no file of this name.
        execl("/no/such/file", "none", (char *)0);
        again(words[1]);
    }
    for (int i = 0; i < calls; i++) work(i);
    if (getenv("LAST"))
        while (access(getenv("LAST"), F_OK)) usleep(5000);
    return 3;
}
