/* One thread for each kind of blocking system call. Each call should take 40 ms (or is answered
 * after 40 ms). It must not fail with EINTR, return early, or return much too late. Two kinds take
 * 1.5 s: restarted at each interruption, they would never end.
 *
 *     syscalls SECONDS
 *
 * Calls `tick` before each system call. After SECONDS, or on SIGTERM, prints one line per kind,
 * `NAME ok` or `NAME wrong WHY` with the greatest delay of a call. If all are right, a last line
 * follows: `ok calls N`. */
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
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))
#define NAP_NS 40000000L
#define LONG_NS 1500000000L
/* A large tolerance, for machines with other work. If the kernel cannot resume a wait, the call
 * waits its whole time again after each stop; that is the case for `epoll_wait` and others. */
#define LATE_NS 2000000000L
#define BEGUN_ANEW_LATE_NS 5000000000L

static atomic_long ticks;

NOINLINE void tick(void) { atomic_fetch_add(&ticks, 1); }

static const struct timespec nap = {0, NAP_NS};
static _Atomic int64_t end_ns;
static int silent_pipe[2], silent_epoll, semaphores, messages;

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}

/* A call with a duration of 40 ms: returns its result, with errno. */
static long do_nanosleep(void) { return nanosleep(&nap, NULL); }

static long do_clock_nanosleep(void)
{
    int64_t until = now_ns() + NAP_NS;
    struct timespec t = {until / 1000000000, until % 1000000000};
    errno = clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
    return errno ? -1 : 0;
}

static long do_clock_nanosleep_for(void)
{
    errno = clock_nanosleep(CLOCK_MONOTONIC, 0, &nap, NULL);
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
    sigset_t others;
    sigemptyset(&others);
    sigaddset(&others, SIGTERM);
    return epoll_pwait(silent_epoll, &event, 1, NAP_NS / 1000000, &others);
}

static long do_futex(void)
{
    static uint32_t word;
    long r = syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &nap, NULL, 0);
    return r < 0 && errno == ETIMEDOUT ? 0 : r;
}

static long do_cond_timedwait(void)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
    int64_t until = now_ns() + NAP_NS;
    struct timespec t = {until / 1000000000, until % 1000000000};
    pthread_mutex_lock(&mutex);
    int error;
    do /* may wake up spuriously by its contract */
        error = pthread_cond_clockwait(&condition, &mutex, CLOCK_MONOTONIC, &t);
    while (error == 0);
    pthread_mutex_unlock(&mutex);
    return error == ETIMEDOUT ? 0 : error;
}

static long do_timerfd(void)
{
    static int fd = -1;
    if (fd < 0 && (fd = timerfd_create(CLOCK_MONOTONIC, 0)) < 0)
        return -1;
    struct itimerspec once = {{0, 0}, {0, NAP_NS}};
    uint64_t expired = 0;
    if (timerfd_settime(fd, 0, &once, NULL) < 0 || read(fd, &expired, sizeof expired) < 0)
        return -1;
    return expired == 1 ? 0 : 1;
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

static long do_long_nanosleep(void)
{
    const struct timespec t = {LONG_NS / 1000000000, LONG_NS % 1000000000};
    return nanosleep(&t, NULL);
}

static long do_long_poll(void)
{
    struct pollfd fd = silence();
    return poll(&fd, 1, LONG_NS / 1000000);
}

/* Runs `give` in another thread 40 ms after the request. */
struct answer {
    long (*give)(struct answer *);
    int64_t at;
    pthread_t to, by;
    int fd;
    atomic_int taken;
};

static void *answerer(void *argument)
{
    struct answer *a = argument;
    struct timespec t = {a->at / 1000000000, a->at % 1000000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
        ;
    return (void *)(intptr_t)a->give(a);
}

static void ask(struct answer *answer)
{
    answer->at = now_ns() + NAP_NS;
    answer->to = pthread_self();
    pthread_create(&answer->by, NULL, answerer, answer);
}

/* 0 if the answered call was right, 2 if the answer failed, else `r` or 1; errno is unchanged. */
static long answered(struct answer *answer, int right, long r)
{
    int error = errno;
    void *given;
    answer->taken = 1;
    pthread_join(answer->by, &given);
    errno = error;
    if (given)
        return 2;
    return right ? 0 : r < 0 ? r : 1;
}

static long give_byte(struct answer *a) { return write(a->fd, "x", 1) != 1; }

static long do_read(void)
{
    int pipe_fd[2];
    if (pipe(pipe_fd) < 0)
        return -1;
    struct answer answer = {.give = give_byte, .fd = pipe_fd[1]};
    ask(&answer);
    char byte = 0;
    long r = read(pipe_fd[0], &byte, 1);
    r = answered(&answer, r == 1 && byte == 'x', r);
    close(pipe_fd[0]);
    close(pipe_fd[1]);
    return r;
}

static long give_count(struct answer *a)
{
    uint64_t count = 3;
    return write(a->fd, &count, sizeof count) != sizeof count;
}

static long do_eventfd(void)
{
    static int fd = -1;
    if (fd < 0 && (fd = eventfd(0, 0)) < 0)
        return -1;
    struct answer answer = {.give = give_count, .fd = fd};
    ask(&answer);
    uint64_t count = 0;
    long r = read(fd, &count, sizeof count);
    return answered(&answer, r == sizeof count && count == 3, r);
}

struct message {
    long kind;
    char text[1];
};

static long give_message(struct answer *a)
{
    (void)a;
    struct message message = {1, "x"};
    return msgsnd(messages, &message, 1, 0);
}

static long do_msgrcv(void)
{
    struct answer answer = {.give = give_message};
    ask(&answer);
    struct message message;
    long r = msgrcv(messages, &message, 1, 0, 0);
    return answered(&answer, r == 1, r);
}

/* An abstract name: the kernel removes it with the socket. */
static struct sockaddr_un name_of_listener(void)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "syscalls-%d", getpid());
    return name;
}

static long give_connection(struct answer *a)
{
    struct sockaddr_un name = name_of_listener();
    a->fd = socket(AF_UNIX, SOCK_STREAM, 0);
    return a->fd < 0 || connect(a->fd, (struct sockaddr *)&name, sizeof name) != 0;
}

static long do_accept(void)
{
    static int listener = -1;
    if (listener < 0) {
        struct sockaddr_un name = name_of_listener();
        listener = socket(AF_UNIX, SOCK_STREAM, 0);
        if (bind(listener, (struct sockaddr *)&name, sizeof name) < 0 || listen(listener, 1) < 0)
            return -1;
    }
    struct answer answer = {.give = give_connection};
    ask(&answer);
    int fd = accept(listener, NULL, NULL);
    long r = answered(&answer, fd >= 0, fd);
    close(fd);
    close(answer.fd);
    return r;
}

/* Two open file descriptions of one unnamed file, whose locks exclude each other. */
static int open_twice(int fd[2])
{
    char path[64];
    fd[0] = open("/tmp", O_TMPFILE | O_RDWR, 0600);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd[0]);
    fd[1] = open(path, O_RDWR);
    return fd[0] < 0 || fd[1] < 0 ? -1 : 0;
}

static long give_flock(struct answer *a) { return flock(a->fd, LOCK_UN); }

static long do_flock(void)
{
    static int fd[2] = {-1, -1};
    if ((fd[0] < 0 && open_twice(fd) < 0) || flock(fd[0], LOCK_EX) < 0)
        return -1;
    struct answer answer = {.give = give_flock, .fd = fd[0]};
    ask(&answer);
    long r = flock(fd[1], LOCK_EX);
    r = answered(&answer, r == 0, r);
    flock(fd[1], LOCK_UN);
    return r;
}

static int lock(int fd, int command, short type)
{
    struct flock range = {.l_type = type, .l_whence = SEEK_SET};
    return fcntl(fd, command, &range);
}

static long give_range(struct answer *a) { return lock(a->fd, F_OFD_SETLK, F_UNLCK); }

static long do_fcntl(void)
{
    static int fd[2] = {-1, -1};
    if ((fd[0] < 0 && open_twice(fd) < 0) || lock(fd[0], F_OFD_SETLK, F_WRLCK) < 0)
        return -1;
    struct answer answer = {.give = give_range, .fd = fd[0]};
    ask(&answer);
    long r = lock(fd[1], F_OFD_SETLKW, F_WRLCK);
    r = answered(&answer, r == 0, r);
    lock(fd[1], F_OFD_SETLK, F_UNLCK);
    return r;
}

/* Calls that only a signal ends: it is handled in that very call, and EINTR is right. */
static _Thread_local volatile sig_atomic_t handled;

static void on_signal(int signal)
{
    (void)signal;
    handled++;
}

static long give_signal(struct answer *a) { return pthread_kill(a->to, SIGUSR1); }

static long do_sigsuspend(void)
{
    sigset_t blocked, during;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &blocked, &during);
    struct answer answer = {.give = give_signal};
    int before = handled;
    ask(&answer);
    long r = sigsuspend(&during);
    sigset_t after;
    int right = r == -1 && errno == EINTR && handled == before + 1 &&
                pthread_sigmask(SIG_BLOCK, NULL, &after) == 0 && sigismember(&after, SIGUSR1);
    r = answered(&answer, right, right ? 0 : 3);
    pthread_sigmask(SIG_UNBLOCK, &blocked, NULL);
    return r;
}

/* The thread may reach its pause late, so the signal is repeated until it has been woken. */
static long give_signals(struct answer *a)
{
    while (!a->taken) {
        if (pthread_kill(a->to, SIGUSR1) != 0)
            return 1;
        for (int i = 0; i < 10 && !a->taken; i++)
            nanosleep(&(struct timespec){0, NAP_NS / 10}, NULL);
    }
    return 0;
}

static long do_pause(void)
{
    struct answer answer = {.give = give_signals};
    int before = handled;
    ask(&answer);
    long r = pause();
    return answered(&answer, r == -1 && errno == EINTR && handled > before, 3);
}

static struct kind {
    const char *name;
    long (*call)(void);
    long ns, late_ns;
    char wrong[120];
    int64_t latest;
    /* The allowed time by which it may return early by itself. */
    long early_ns;
} kinds[] = {
    {"nanosleep", do_nanosleep, NAP_NS, LATE_NS, "", 0, 0},
    {"clock_nanosleep", do_clock_nanosleep, NAP_NS, LATE_NS, "", 0, 0},
    {"poll", do_poll, NAP_NS, LATE_NS, "", 0, 0},
    {"ppoll", do_ppoll, NAP_NS, LATE_NS, "", 0, 0},
    {"select", do_select, NAP_NS, LATE_NS, "", 0, 0},
    {"pselect", do_pselect, NAP_NS, LATE_NS, "", 0, 0},
    {"epoll_wait", do_epoll_wait, NAP_NS, BEGUN_ANEW_LATE_NS, "", 0, 0},
    {"epoll_pwait", do_epoll_pwait, NAP_NS, BEGUN_ANEW_LATE_NS, "", 0, 0},
    {"futex", do_futex, NAP_NS, LATE_NS, "", 0, 0},
    {"semtimedop", do_semtimedop, NAP_NS, BEGUN_ANEW_LATE_NS, "", 0, 0},
    {"sigtimedwait", do_sigtimedwait, NAP_NS, BEGUN_ANEW_LATE_NS, "", 0, 0},
    {"io_getevents", do_io_getevents, NAP_NS, BEGUN_ANEW_LATE_NS, "", 0, 0},
    /* These count in ticks of the system's clock. In a virtual machine whose host runs something
     * else, ticks arrive late, and then several at once: up to five jiffies
     * (kernel/time/tick-sched.c, MAX_STALLED_JIFFIES). */
    {"recv", do_recv, NAP_NS, BEGUN_ANEW_LATE_NS, "", 0, NAP_NS / 2},
    {"wait", do_wait, NAP_NS, LATE_NS, "", 0, 0},
    {"read", do_read, NAP_NS, LATE_NS, "", 0, 0},
    {"msgrcv", do_msgrcv, NAP_NS, LATE_NS, "", 0, 0},
    {"clock_nanosleep_for", do_clock_nanosleep_for, NAP_NS, LATE_NS, "", 0, 0},
    {"cond_timedwait", do_cond_timedwait, NAP_NS, LATE_NS, "", 0, 0},
    {"timerfd", do_timerfd, NAP_NS, LATE_NS, "", 0, 0},
    {"eventfd", do_eventfd, NAP_NS, LATE_NS, "", 0, 0},
    {"accept", do_accept, NAP_NS, LATE_NS, "", 0, 0},
    {"flock", do_flock, NAP_NS, LATE_NS, "", 0, 0},
    {"fcntl", do_fcntl, NAP_NS, LATE_NS, "", 0, 0},
    {"sigsuspend", do_sigsuspend, NAP_NS, LATE_NS, "", 0, 0},
    {"pause", do_pause, NAP_NS, LATE_NS, "", 0, 0},
    {"long_nanosleep", do_long_nanosleep, LONG_NS, LATE_NS, "", 0, 0},
    {"long_poll", do_long_poll, LONG_NS, LATE_NS, "", 0, 0},
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
        if (took - kind->ns > kind->latest)
            kind->latest = took - kind->ns;
        /* Timeouts in ms and the slack of coarse clocks allow 1 ms less. */
        if (r != 0)
            snprintf(kind->wrong, sizeof kind->wrong, "returned %ld: %s", r, strerror(error));
        else if (took < kind->ns - 1000000 - kind->early_ns || took > kind->ns + kind->late_ns)
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
    sigaddset(&set, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    signal(SIGUSR1, on_signal);
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
    sigdelset(&set, SIGUSR2);
    int64_t left;
    while ((left = end_ns - now_ns()) > 0) {
        struct timespec t = {left / 1000000000, left % 1000000000};
        if (sigtimedwait(&set, NULL, &t) == SIGTERM)
            end_ns = 0;
    }
    int wrong = 0;
    for (size_t i = 0; i < KINDS; i++) {
        pthread_join(threads[i], NULL);
        printf("%s %s%s, %lld us late\n", kinds[i].name, kinds[i].wrong[0] ? "wrong " : "ok",
               kinds[i].wrong, (long long)kinds[i].latest / 1000);
        wrong += kinds[i].wrong[0] != 0;
    }
    semctl(semaphores, 0, IPC_RMID);
    msgctl(messages, IPC_RMID, NULL);
    if (wrong == 0)
        printf("ok calls %ld\n", ticks);
    return wrong != 0;
}
