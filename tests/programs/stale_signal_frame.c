/* The signal frame of a finished handler in the mapping of another thread's stack, as in Go
 * programs. It looks as if that thread would continue in the runtime's code.
 *
 *     stale_signal_frame
 *
 * Prints `ready`. After SIGUSR2, once there is executable memory without a file, it prints
 * `planted`: the frame claims that it interrupted code there. SIGTERM ends it: `calls work N`,
 * `ok`. */
#define _GNU_SOURCE
#include "work.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

enum { PART = 1 << 18 };

static char *area;
static volatile sig_atomic_t looks;
static greg_t *interrupted;

static void handle(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)info;
    interrupted = &((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
}

static void look(int signal)
{
    (void)signal;
    looks = 1;
}

static void *sleeps(void *argument)
{
    for (;;)
        pause();
    return argument;
}

/* Executable memory without a mapped file. */
static unsigned long runtime(void)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];
    unsigned long found = 0, from, to, inode;
    while (fgets(line, sizeof line, maps)) {
        char mode[5], name[256] = "";
        int got = sscanf(line, "%lx-%lx %4s %*x %*s %lu %255s", &from, &to, mode, &inode, name);
        if (got >= 4 && mode[2] == 'x' && inode == 0 && !name[0])
            found = from + 64;
    }
    fclose(maps);
    return found;
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    area = mmap(NULL, 2 * PART, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stack_t stack = {.ss_sp = area + PART, .ss_size = PART};
    struct sigaction on_stack = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    struct sigaction ending = {.sa_handler = end}, looking = {.sa_handler = look};
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    if (area == MAP_FAILED || sigaltstack(&stack, NULL) || sigaction(SIGUSR1, &on_stack, NULL) ||
        sigaction(SIGUSR2, &looking, NULL) || sigaction(SIGTERM, &ending, NULL) || pthread_attr_setstack(&attributes, area, PART) ||
        pthread_create(&thread, &attributes, sleeps, NULL))
        return 2;
    raise(SIGUSR1);
    puts("ready");
    long calls = 0, result = 0;
    for (int is_planted = 0; !ends; usleep(1000)) {
        result = work(result);
        calls++;
        unsigned long code = looks && !is_planted ? runtime() : 0;
        if (code) {
            *interrupted = (greg_t)code;
            is_planted = 1;
            puts("planted");
        }
    }
    printf("calls work %ld\nok %ld\n", calls, result);
    return 0;
}
