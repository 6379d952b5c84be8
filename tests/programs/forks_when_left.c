/* A signal handler interrupts the recording of a call. It waits there until `work` has its original
 * bytes, and then forks. The child returns from the handler, calls `work` and ends; its status is
 * printed as `child N`. Ends on SIGTERM with `ok`. */
#define _GNU_SOURCE
#include "work.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

enum { BYTES = 8, CALLS = 1000 };

static char at_first[BYTES];
static volatile sig_atomic_t has_stood, is_child;

static void say(const char *line)
{
    if (write(1, line, strlen(line)) < 0)
        _exit(3);
}

/* Code outside the program's files is the runtime. After a system call, where blocked signals
 * arrive, a recording is over. */
static int is_amid_recording(const unsigned char *pc)
{
    Dl_info found;
    return !dladdr(pc, &found) && !(pc[-2] == 0x0f && pc[-1] == 0x05);
}

static void on_alarm(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    (void)info;
    void *pc = (void *)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
    if (has_stood || memcmp(at_first, (void *)work, BYTES) == 0 || !is_amid_recording(pc))
        return;
    has_stood = 1;
    say("standing\n");
    while (memcmp(at_first, (void *)work, BYTES) != 0)
        usleep(1000);
    usleep(200000);
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        is_child = 1;
        return;
    }
    if (waitpid(child, &status, 0) == child) {
        char line[32];
        snprintf(line, sizeof line, "child %d\n", status);
        say(line);
    }
}

int main(void)
{
    memcpy(at_first, (void *)work, BYTES);
    struct sigaction ending = {.sa_handler = end, .sa_flags = SA_RESTART};
    sigaction(SIGTERM, &ending, NULL);
    struct sigaction alarms = {.sa_sigaction = on_alarm, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigaction(SIGALRM, &alarms, NULL);
    struct itimerval timer = {{0, 1000}, {0, 1000}};
    setitimer(ITIMER_REAL, &timer, NULL);
    say("ready\n");
    long sum = 0, left = CALLS;
    while (!ends && left > 0) {
        sum += work(sum);
        left -= is_child;
    }
    if (is_child)
        _exit(0);
    say("ok\n");
    return 0;
}
