/* One thread for each kind of blocking system call. Each call is asked to take 40 ms (or is
 * answered after 40 ms); it may neither fail with EINTR nor return early nor much too late.
 *
 *     syscalls SECONDS
 *
 * Calls `tick` before each system call. Prints one line a kind: `NAME ok` or `NAME wrong WHY`. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))
#define NAP_NS 40000000L
#define LATE_NS 400000000L

static atomic_long ticks;

NOINLINE void tick(void) { atomic_fetch_add(&ticks, 1); }

static const struct timespec nap = {0, NAP_NS};
static int64_t end_ns;
static int silent_pipe[2], silent_epoll, semaphores, messages;

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}

/* A call that is given 40 ms: returns what it returned, with errno. */
static long do_nanosleep(void) { return nanosleep(&nap, NULL); }

static long do_clock_nanosleep(void)
{
    int64_t until = now_ns() + NAP_NS;
    struct timespec t = {until / 1000000000, until % 1000000000};
    errno = clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
    return errno ? -1 : 0;
}

static struct pollfd silence(void) { return (struct pollfd){silent_pipe[0], POLLIN, 0}; }

static long do_poll(void)
{
    struct pollfd fd = silence();
    return poll(&fd, 1, NAP_NS / 1000000);
}

static long do_ppoll(void)
{
    struct pollfd fd = silence();
    return ppoll(&fd, 1, &nap, NULL);
}

static long do_select(void)
{
    struct timeval t = {0, NAP_NS / 1000};
    fd_set set;
    FD_ZERO(&set);
    FD_SET(silent_pipe[0], &set);
    return select(silent_pipe[0] + 1, &set, NULL, NULL, &t);
}

static long do_pselect(void)
{
    fd_set set;
    FD_ZERO(&set);
    FD_SET(silent_pipe[0], &set);
    return pselect(silent_pipe[0] + 1, &set, NULL, NULL, &nap, NULL);
}

static long do_epoll_wait(void)
{
    struct epoll_event event;
    return epoll_wait(silent_epoll, &event, 1, NAP_NS / 1000000);
}

static long do_epoll_pwait(void)
{
    struct epoll_event event;
    sigset_t none;
    sigemptyset(&none);
    return epoll_pwait(silent_epoll, &event, 1, NAP_NS / 1000000, &none);
}

static long do_futex(void)
{
    static uint32_t word;
    long r = syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &nap, NULL, 0);
    return r < 0 && errno == ETIMEDOUT ? 0 : r;
}

static long do_semtimedop(void)
{
    struct sembuf take = {0, -1, 0};
    long r = semtimedop(semaphores, &take, 1, &nap);
    return r < 0 && errno == EAGAIN ? 0 : r;
}

static long do_sigtimedwait(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    long r = sigtimedwait(&set, NULL, &nap);
    return r < 0 && errno == EAGAIN ? 0 : r;
}

static long do_io_getevents(void)
{
    static aio_context_t context;
    if (context == 0 && syscall(SYS_io_setup, 4, &context) < 0)
        return -1;
    struct io_event event;
    struct timespec t = nap;
    return syscall(SYS_io_getevents, context, 1, 1, &event, &t);
}

static long do_recv(void)
{
    static int pair[2] = {-1, -1};
    struct timeval t = {0, NAP_NS / 1000};
    if (pair[0] < 0 && (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0 ||
                        setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t) < 0))
        return -1;
    char byte;
    long r = recv(pair[0], &byte, 1, 0);
    return r < 0 && errno == EAGAIN ? 0 : r;
}

/* Calls that another party answers after 40 ms. */
static long do_wait(void)
{
    pid_t child = fork();
    if (child == 0) {
        nanosleep(&nap, NULL);
        _exit(7);
    }
    int status = 0;
    if (waitpid(child, &status, 0) != child)
        return -1;
    return WIFEXITED(status) && WEXITSTATUS(status) == 7 ? 0 : 1;
}

struct answer {
    int fd;
    int64_t at;
};

static void *answerer(void *argument)
{
    struct answer *a = argument;
    struct timespec t = {a->at / 1000000000, a->at % 1000000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
        ;
    if (a->fd >= 0)
        return (void *)(intptr_t)write(a->fd, "x", 1);
    struct {
        long kind;
        char text[1];
    } message = {1, "x"};
    return (void *)(intptr_t)(msgsnd(messages, &message, 1, 0) + 1);
}

static long do_read(void)
{
    int pipe_fd[2];
    if (pipe(pipe_fd) < 0)
        return -1;
    struct answer answer = {pipe_fd[1], now_ns() + NAP_NS};
    pthread_t thread;
    pthread_create(&thread, NULL, answerer, &answer);
    char byte = 0;
    long r = read(pipe_fd[0], &byte, 1);
    int error = errno;
    pthread_join(thread, NULL);
    close(pipe_fd[0]);
    close(pipe_fd[1]);
    errno = error;
    return r == 1 && byte == 'x' ? 0 : r < 0 ? r : 1;
}

static long do_msgrcv(void)
{
    struct answer answer = {-1, now_ns() + NAP_NS};
    pthread_t thread;
    pthread_create(&thread, NULL, answerer, &answer);
    struct {
        long kind;
        char text[1];
    } message;
    long r = msgrcv(messages, &message, 1, 0, 0);
    int error = errno;
    pthread_join(thread, NULL);
    errno = error;
    return r == 1 ? 0 : r < 0 ? r : 1;
}

static struct kind {
    const char *name;
    long (*call)(void);
    char wrong[120];
} kinds[] = {
    {"nanosleep", do_nanosleep, ""},     {"clock_nanosleep", do_clock_nanosleep, ""},
    {"poll", do_poll, ""},               {"ppoll", do_ppoll, ""},
    {"select", do_select, ""},           {"pselect", do_pselect, ""},
    {"epoll_wait", do_epoll_wait, ""},   {"epoll_pwait", do_epoll_pwait, ""},
    {"futex", do_futex, ""},             {"semtimedop", do_semtimedop, ""},
    {"sigtimedwait", do_sigtimedwait, ""}, {"io_getevents", do_io_getevents, ""},
    {"recv", do_recv, ""},               {"wait", do_wait, ""},
    {"read", do_read, ""},               {"msgrcv", do_msgrcv, ""},
};
#define KINDS (sizeof kinds / sizeof *kinds)

static void *run(void *argument)
{
    struct kind *kind = argument;
    while (now_ns() < end_ns && !kind->wrong[0]) {
        tick();
        int64_t start = now_ns();
        errno = 0;
        long r = kind->call();
        int error = errno;
        int64_t took = now_ns() - start;
        /* Timeouts in ms and the slack of coarse clocks allow 1 ms less. */
        if (r != 0)
            snprintf(kind->wrong, sizeof kind->wrong, "returned %ld: %s", r, strerror(error));
        else if (took < NAP_NS - 1000000 || took > NAP_NS + LATE_NS)
            snprintf(kind->wrong, sizeof kind->wrong, "took %lld us", (long long)took / 1000);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    end_ns = now_ns() + (int64_t)((argc > 1 ? atof(argv[1]) : 2) * 1e9);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    struct epoll_event event = {EPOLLIN, {0}};
    if (pipe(silent_pipe) < 0 || (silent_epoll = epoll_create1(0)) < 0 ||
        epoll_ctl(silent_epoll, EPOLL_CTL_ADD, silent_pipe[0], &event) < 0 ||
        (semaphores = semget(IPC_PRIVATE, 1, 0600)) < 0 ||
        (messages = msgget(IPC_PRIVATE, 0600)) < 0) {
        perror("syscalls");
        return 2;
    }
    puts("ready");
    fflush(stdout);
    pthread_t threads[KINDS];
    for (size_t i = 0; i < KINDS; i++)
        pthread_create(&threads[i], NULL, run, &kinds[i]);
    int wrong = 0;
    for (size_t i = 0; i < KINDS; i++) {
        pthread_join(threads[i], NULL);
        printf("%s %s%s\n", kinds[i].name, kinds[i].wrong[0] ? "wrong " : "ok", kinds[i].wrong);
        wrong += kinds[i].wrong[0] != 0;
    }
    semctl(semaphores, 0, IPC_RMID);
    msgctl(messages, IPC_RMID, NULL);
    return wrong != 0;
}
