/* Creates children or threads without a pause, checks each of them, and calls `work`.
 *
 *     churn KIND COUNTER_FILE
 *
 * KIND is fork, vfork, spawn, threads (2,000 a second, each calling `work`) or chain (each thread
 * creates the next one and ends). See epoch.h. Ends on SIGTERM; its last line continues with
 * `made N`. */
#define _GNU_SOURCE
#include "epoch.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

extern char **environ;

static struct counts counts;
static atomic_int stop;
static atomic_long made, ended;
static const char *self_path;

static void on_term(int signal)
{
    (void)signal;
    atomic_store(&stop, 1);
}

static void nap(long ns)
{
    struct timespec t = {0, ns};
    nanosleep(&t, NULL);
}

static void await(pid_t child, int expected)
{
    int status = 0;
    if (child < 0)
        wrong("child", errno);
    while (waitpid(child, &status, 0) != child)
        if (errno != EINTR)
            wrong("waitpid", errno);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != expected)
        wrong("status", status);
    ended++;
}

/* Two threads beside the forking one call `work` all the time. */
static void *caller(void *unused)
{
    (void)unused;
    for (uint64_t x = 1; !atomic_load(&stop); x += 7)
        call_work(&counts, x);
    return NULL;
}

static void fork_one(long number)
{
    pid_t child = fork();
    if (child == 0) {
        struct counts own = {0}; /* not recorded, but correct */
        for (int i = 0; i < 10; i++)
            call_work(&own, (uint64_t)number * 10 + (uint64_t)i);
        _exit((int)(number % 100));
    }
    await(child, (int)(number % 100));
}

static void vfork_one(long number)
{
    static volatile long life;
    life = number % 8 == 0 ? 30000000 : number % 3 * 1000000;
    volatile long own = number;
    pid_t child = vfork();
    if (child == 0) {
        if (own % 2 == 0)
            execl(self_path, self_path, "child", NULL);
        nap(life);
        _exit(7);
    }
    if (own != number)
        wrong("stack", own);
    await(child, 7);
}

static void spawn_one(long number)
{
    (void)number;
    pid_t child = -1;
    char *arguments[] = {(char *)(uintptr_t)self_path, "child", NULL};
    errno = posix_spawn(&child, self_path, NULL, NULL, arguments, environ);
    await(errno ? -1 : child, 7);
}

static void *thread_of_storm(void *argument)
{
    call_work(&counts, (uint64_t)(intptr_t)argument);
    ended++;
    return argument;
}

static void thread_one(long number)
{
    enum { AT_ONCE = 8 };
    static pthread_t handles[AT_ONCE];
    static int64_t next;
    int at = (int)(number % AT_ONCE);
    if (number >= AT_ONCE) {
        void *result;
        pthread_join(handles[at], &result);
        if (result != (void *)(intptr_t)(number - AT_ONCE))
            wrong("thread", number);
    }
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    int64_t t = now.tv_sec * 1000000000L + now.tv_nsec;
    next = next < t - 10000000 ? t : next + 500000;
    if (next > t)
        nap(next - t);
    if (pthread_create(&handles[at], NULL, thread_of_storm, (void *)(intptr_t)number) != 0)
        wrong("pthread_create", errno);
}

static void *link_of_chain(void *argument)
{
    call_work(&counts, (uint64_t)(intptr_t)argument);
    pthread_t next;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    if (!atomic_load(&stop)) {
        made++;
        if (pthread_create(&next, &attributes, link_of_chain, (char *)argument + 1) != 0)
            wrong("pthread_create", errno);
    }
    ended++;
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "child") == 0)
        return 7;
    if (argc < 3)
        return 2;
    const char *kind = argv[1];
    static char path[4096];
    if (readlink("/proc/self/exe", path, sizeof path - 1) < 0)
        return 2;
    self_path = path;
    epoch_open(argv[2]);
    signal(SIGTERM, on_term);
    void (*one)(long) = strcmp(kind, "fork") == 0      ? fork_one
                        : strcmp(kind, "vfork") == 0   ? vfork_one
                        : strcmp(kind, "spawn") == 0   ? spawn_one
                        : strcmp(kind, "threads") == 0 ? thread_one
                                                       : NULL;
    pthread_t callers[2];
    for (int i = 0; i < 2 && one != thread_one && one; i++)
        pthread_create(&callers[i], NULL, caller, NULL);
    if (!one) {
        made++;
        link_of_chain((void *)1);
    }
    if (one)
        one(made++); /* at its first thread the C library reserves a signal */
    puts("ready");
    fflush(stdout);
    while (!atomic_load(&stop))
        if (one)
            one(made++);
        else
            nap(1000000);
    for (int i = 0; i < 2 && one != thread_one && one; i++)
        pthread_join(callers[i], NULL);
    /* All created ones have ended, each in the expected way. */
    for (int i = 0; i < 5000 && ended != made; i++)
        nap(1000000);
    if (ended != made)
        wrong("ended", ended - made);
    print_counts(&counts);
    printf(" made %ld\n", made);
    return 0;
}
