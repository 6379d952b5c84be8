// A program that starts others in the way that its first argument names, as often as the second
// says. Each process writes its number of calls of work by caller into the folder WORKED, so that
// the test can compare ipath's counts.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))

extern char **environ;
static unsigned long counted[3];
static char *self;

NOINLINE void work(int who) {
    counted[who]++;
    __asm__ volatile("");
}

NOINLINE void in_parent(int n) {
    for (int i = 0; i < n; i++)
        work(0);
    __asm__ volatile("");
}

NOINLINE void in_child(int n) {
    for (int i = 0; i < n; i++)
        work(1);
    __asm__ volatile("");
}

NOINLINE void in_program(int n) {
    for (int i = 0; i < n; i++)
        work(2);
    __asm__ volatile("");
}

// Writes the counts of this process.
static void tell(void) {
    static int programs;
    char path[4096], text[200];
    snprintf(path, sizeof path, "%s/%d.%d", getenv("WORKED"), getpid(), programs++);
    int length = snprintf(text, sizeof text, "in_parent %lu\nin_child %lu\nin_program %lu\n", counted[0], counted[1], counted[2]);
    int file = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (file < 0 || write(file, text, length) != length)
        abort();
    close(file);
}

static void end(int status) {
    tell();
    _exit(status);
}

static void collect(pid_t child, int expected) {
    int status;
    while (waitpid(child, &status, __WALL) < 0)
        ;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != expected) {
        printf("child %d ended with %#x in the place of %d\n", child, status, expected);
        fflush(stdout);
        abort();
    }
}

// A child starts with zero counts.
static void begin_child(void) { memset(counted, 0, sizeof counted); }

static void by_fork(int i) {
    pid_t child = fork();
    if (!child) {
        begin_child();
        in_child(i % 7 + 1);
        end(i % 50);
    }
    in_parent(1);
    collect(child, i % 50);
}

// A grandchild whose parent has ended: a daemon.
static void by_daemon(int i) {
    int told[2];
    if (pipe(told))
        abort();
    pid_t child = fork();
    if (!child) {
        setsid();
        if (fork())
            _exit(0);
        begin_child();
        in_child(i % 7 + 1);
        tell();
        if (write(told[1], "x", 1) != 1)
            abort();
        _exit(0);
    }
    collect(child, 0);
    char byte;
    if (read(told[0], &byte, 1) != 1)
        abort();
    close(told[0]);
    close(told[1]);
}

static char **program(int i) {
    static char number[16];
    static char *arguments[] = {0, "program", number, 0};
    arguments[0] = self;
    snprintf(number, sizeof number, "%d", i % 7 + 1);
    return arguments;
}

static void by_exec(int i) {
    pid_t child = fork();
    if (!child) {
        begin_child();
        in_child(i % 3 + 1);
        tell();
        execv(self, program(i));
        abort();
    }
    collect(child, i % 7 + 1);
}

static void by_vfork(int i) {
    char **arguments = program(i);
    pid_t child = vfork();
    if (!child) {
        execv(self, arguments);
        _exit(127);
    }
    in_parent(1);
    collect(child, i % 7 + 1);
}

static void by_spawn(int i) {
    pid_t child;
    if (posix_spawn(&child, self, 0, 0, program(i), environ))
        abort();
    in_parent(1);
    collect(child, i % 7 + 1);
}

static int cloned(void *i) {
    // It shares the memory, but its calls belong to neither the parent nor a measured process.
    execv(self, program((int)(intptr_t)i));
    return 127;
}

static void by_clone_vm(int i) {
    static char stack[1 << 16];
    pid_t child = clone(cloned, stack + sizeof stack, CLONE_VM | SIGCHLD, (void *)(intptr_t)i);
    if (child < 0)
        abort();
    in_parent(1);
    collect(child, i % 7 + 1);
}

static void *forking(void *i) {
    by_fork((int)(intptr_t)i);
    return 0;
}

// A child of a thread among others.
static void by_thread(int i) {
    pthread_t threads[3];
    for (int n = 0; n < 3; n++)
        pthread_create(&threads[n], 0, forking, (void *)(intptr_t)(i + n));
    for (int n = 0; n < 3; n++)
        pthread_join(threads[n], 0);
}

static void *executing(void *i) {
    execv(self, program((int)(intptr_t)i));
    return 0;
}

// A thread other than the first one executes another program.
static void by_exec_in_thread(int i) {
    pid_t child = fork();
    if (!child) {
        begin_child();
        in_child(1);
        tell();
        pthread_t thread;
        pthread_create(&thread, 0, executing, (void *)(intptr_t)i);
        pause();
    }
    collect(child, i % 7 + 1);
}

// Children of children.
static void by_generations(int i) {
    pid_t child = fork();
    if (!child) {
        begin_child();
        in_child(1);
        if (i > 0)
            by_generations(i - 1);
        end(0);
    }
    collect(child, 0);
}

static volatile sig_atomic_t handled;
static void handle(int signal) {
    (void)signal;
    handled++;
}

// Signals to a child, and stopping and continuing its group, work as usual.
static void by_signals(int i) {
    pid_t child = fork();
    if (!child) {
        begin_child();
        struct sigaction action = {.sa_handler = handle};
        sigaction(SIGUSR1, &action, 0);
        sigset_t set, before;
        sigemptyset(&set);
        sigaddset(&set, SIGUSR1);
        sigprocmask(SIG_BLOCK, &set, &before);
        raise(SIGSTOP);
        in_child(1);
        while (!handled)
            sigsuspend(&before);
        in_child(handled);
        end(i % 50);
    }
    int status;
    if (waitpid(child, &status, WUNTRACED) != child || !WIFSTOPPED(status) || WSTOPSIG(status) != SIGSTOP) {
        puts("no stop");
        fflush(stdout);
        abort();
    }
    usleep(2000);
    kill(child, SIGCONT);
    if (waitpid(child, &status, WCONTINUED) != child || !WIFCONTINUED(status)) {
        puts("no going on");
        fflush(stdout);
        abort();
    }
    kill(child, SIGUSR1);
    collect(child, i % 50);
}

static const struct {
    const char *name;
    void (*begin)(int);
} WAYS[] = {
    {"fork", by_fork},
    {"daemon", by_daemon},
    {"exec", by_exec},
    {"vfork", by_vfork},
    {"spawn", by_spawn},
    {"clone_vm", by_clone_vm},
    {"thread", by_thread},
    {"exec_in_thread", by_exec_in_thread},
    {"generations", by_generations},
    {"signals", by_signals},
};

int main(int count, char **arguments) {
    self = arguments[0];
    const char *way = count > 1 ? arguments[1] : "";
    int n = count > 2 ? atoi(arguments[2]) : 1;
    if (!strcmp(way, "program")) {
        in_program(n);
        end(n);
    }
    if (count > 3) {
        puts("ready");
        fflush(stdout);
        char go[4096];
        snprintf(go, sizeof go, "%s.go", getenv("WORKED"));
        while (access(go, F_OK))
            usleep(1000);
    }
    in_parent(2);
    for (size_t w = 0; w < sizeof WAYS / sizeof *WAYS; w++)
        for (int i = 0; i < n; i++)
            if (!strcmp(way, WAYS[w].name) || !strcmp(way, "all"))
                WAYS[w].begin(i);
    tell();
    puts("done");
    return count > 3 ? 0 : 3;
}
