/* A server that forks as many workers as its argument says, and a helper that executes sleep(1).
 * The second worker forks a child. After $WORKED/go appears, each calls `work` as often as its
 * number says, and writes a line `CALLER N` into $WORKED/PID. The first worker ends after
 * $WORKED/end appears. After $WORKED/more appears, the server and its second worker fork another
 * child each. With $VFORKS, the first worker waits in vfork(2) until $WORKED/child appears, and
 * then for $WORKED/again. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "work.h"

#define NOINLINE __attribute__((noinline, noclone, noipa))

static long sum;

NOINLINE void in_master(int n)
{
    for (int i = 0; i < n; i++)
        sum += work(i);
    sum++;
}

NOINLINE void in_worker(int n)
{
    for (int i = 0; i < n; i++)
        sum += work(i);
    sum++;
}

NOINLINE void in_late(int n)
{
    for (int i = 0; i < n; i++)
        sum += work(i);
    sum++;
}

NOINLINE void in_grandchild(int n)
{
    for (int i = 0; i < n; i++)
        sum += work(i);
    sum++;
}

static const char *path(const char *name)
{
    static char text[4096];
    snprintf(text, sizeof text, "%s/%s", getenv("WORKED"), name);
    return text;
}

static void await(const char *name)
{
    while (!ends && access(path(name), F_OK))
        usleep(1000);
}

/* Each process except the first writes a byte once it runs. */
static int told[2];

static void perform(const char *caller, void (*function)(int), int n)
{
    if (write(told[1], "x", 1) != 1)
        abort();
    await("go");
    function(n);
    char name[20], line[100];
    snprintf(name, sizeof name, "%d.new", getpid());
    int length = snprintf(line, sizeof line, "%s %d\n", caller, n);
    int file = open(path(name), O_WRONLY | O_CREAT, 0600);
    if (file < 0 || write(file, line, length) != length)
        abort();
    close(file);
    char whole[4096];
    strcpy(whole, path(name));
    snprintf(name, sizeof name, "%d", getpid());
    rename(whole, path(name));
}

static void sleep_on(void)
{
    while (!ends)
        usleep(1000);
    _exit(0);
}

static void wait_in_vfork(void)
{
    if (!vfork()) {
        if (write(told[1], "x", 1) != 1)
            abort();
        await("child");
        _exit(0);
    }
    await("again");
}

static void have_more(int n)
{
    await("more");
    if (ends || fork())
        return;
    perform("in_late", in_late, n);
    sleep_on();
}

int main(int count, char **arguments)
{
    int workers = count > 1 ? atoi(arguments[1]) : 3;
    struct sigaction ending = {.sa_handler = end};
    sigaction(SIGTERM, &ending, NULL);
    if (pipe2(told, O_CLOEXEC))
        abort();
    for (int i = 0; i < workers; i++) {
        if (fork())
            continue;
        if (i == 1 && fork() == 0) {
            perform("in_grandchild", in_grandchild, 7);
            sleep_on();
        }
        if (i == 0 && getenv("VFORKS"))
            wait_in_vfork();
        perform("in_worker", in_worker, 100 * (i + 1));
        if (i == 1)
            have_more(50);
        if (i)
            sleep_on();
        await("end");
        _exit(0);
    }
    int closes[2];
    if (pipe2(closes, O_CLOEXEC))
        abort();
    if (!fork()) {
        execlp("sleep", "sleep", "600", NULL);
        abort();
    }
    /* Waits until the helper has executed its program. */
    close(closes[1]);
    char byte;
    if (read(closes[0], &byte, 1))
        abort();
    for (int i = 0; i < workers + (workers > 1); i++)
        if (read(told[0], &byte, 1) != 1)
            abort();
    puts("ready");
    fflush(stdout);
    perform("in_master", in_master, 3);
    have_more(60);
    while (!ends)
        usleep(1000);
    kill(0, SIGTERM);
    while (wait(NULL) > 0)
        ;
    puts("ok");
    return 0;
}
