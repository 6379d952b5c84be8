/* A process to which another one sends signals, two at a time, each with a value (sigqueue(3)),
 * including the signals of faults.
 *
 *     queued_signals
 *
 * Prints `ready PID`, the receiver, which calls `work` all the time. SIGTERM to the sender ends
 * both: `sent N`, `lost N`, `changed N`: the signals that did not arrive, and those that arrived
 * with other data. */
#define _GNU_SOURCE
#include "work.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct {
    volatile unsigned long came, changed;
    volatile int value;
} *shared;

static void handle(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)context;
    if (info->si_code != SI_QUEUE || info->si_pid != getppid() ||
        info->si_value.sival_int != shared->value)
        shared->changed++;
    shared->came++;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

int main(void)
{
    const int sent[] = {SIGILL, SIGFPE, SIGSEGV, SIGBUS, SIGTRAP, SIGSYS, SIGUSR1};
    enum { KINDS = sizeof sent / sizeof *sent };
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return 2;
    struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO};
    for (int i = 0; i < KINDS; i++)
        sigaction(sent[i], &action, NULL);
    pid_t to = fork();
    if (to == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (long x = 0;;)
            x = work(x);
    }
    signal(SIGTERM, end);
    printf("ready %d\n", to);
    fflush(stdout);
    unsigned long all = 0, lost = 0;
    for (int i = 0; !ends; i++) {
        unsigned long before = shared->came;
        shared->value = i;
        union sigval value = {.sival_int = i};
        if (sigqueue(to, sent[i % KINDS], value) || sigqueue(to, sent[(i + 1) % KINDS], value))
            return 3;
        all += 2;
        double begin = now();
        while (shared->came < before + 2 && now() - begin < 10)
            ;
        lost += before + 2 - shared->came;
    }
    kill(to, SIGKILL);
    wait(NULL);
    printf("sent %lu\nlost %lu\nchanged %lu\n", all, lost, shared->changed);
    return 0;
}
