/* A signal handler on top of the recording of a call waits there until `work` is as it was when the program began, and forks then.
 * The child comes back from it, calls `work` and ends; its status is said as `child N`. Ends on SIGTERM with `ok`. */
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

/* What no file of the program's is mapped at is not its own. After a system call, where signals come that were blocked, a recording is
 * over. */
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
