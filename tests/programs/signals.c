/* Receives queued signals 1,000 times a second, and checks that none is lost, duplicated or out of
 * order.
 *
 *     signals COUNTER_FILE
 *
 * A child sends SIGRTMIN+1 to +3 to the process and SIGRTMIN+4 to one thread, each with its number
 * in its sequence; a timer sends SIGRTMIN+5 each millisecond. One thread receives the signals to
 * the process. Another one calls `work` without a pause (see epoch.h) and is interrupted by its own
 * signals. Ends on SIGTERM; its last line continues with `taken N`. */
#define _GNU_SOURCE
#include "epoch.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

enum { KINDS = 4, TO_THREAD = 3, TIMER = 4, INTERVAL_NS = 1000000 };

/* Shared with the child. */
struct shared {
    atomic_int stop;
    atomic_long sent[KINDS];
    atomic_long full;
};

static struct shared *shared;
static struct counts counts;
static atomic_int stop, tid_of_worker;
static atomic_long taken[KINDS], expired;
static timer_t timer;

static void on_queued(int signal, siginfo_t *info, void *context)
{
    (void)context;
    int error = errno, kind = signal - SIGRTMIN - 1;
    long number = info->si_value.sival_int;
    if (info->si_code != SI_QUEUE)
        wrong("code", info->si_code);
    if (number != taken[kind])
        wrong("number", number - taken[kind]);
    taken[kind]++;
    errno = error;
}

static void on_timer(int signal, siginfo_t *info, void *context)
{
    (void)context;
    (void)signal;
    if (info->si_code != SI_TIMER)
        wrong("code", info->si_code);
    expired += 1 + info->si_overrun;
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}

static void nap(long ns)
{
    struct timespec t = {0, ns};
    while (nanosleep(&t, &t) != 0 && errno == EINTR)
        ;
}

static void queue(pid_t pid, pid_t tid, int kind)
{
    siginfo_t info;
    memset(&info, 0, sizeof info);
    info.si_code = SI_QUEUE;
    info.si_pid = getpid();
    info.si_uid = getuid();
    info.si_value.sival_int = (int)shared->sent[kind];
    int signal = SIGRTMIN + 1 + kind;
    while (kind == TO_THREAD ? syscall(SYS_rt_tgsigqueueinfo, pid, tid, signal, &info)
                             : syscall(SYS_rt_sigqueueinfo, pid, signal, &info)) {
        if (errno != EAGAIN)
            _exit(1);
        shared->full++;
        nap(INTERVAL_NS);
    }
    shared->sent[kind]++;
}

static void send_all(pid_t pid, pid_t tid)
{
    int64_t next = now_ns();
    while (!shared->stop) {
        for (int kind = 0; kind < KINDS; kind++)
            queue(pid, tid, kind);
        next += INTERVAL_NS;
        int64_t left = next - now_ns();
        if (left > 0)
            nap(left);
        else if (left < -100000000)
            next = now_ns();
    }
}

static void *worker(void *unused)
{
    (void)unused;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN + 1 + TO_THREAD);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    tid_of_worker = gettid();
    for (uint64_t x = 1; !stop; x += 7)
        call_work(&counts, x);
    /* Also receives the signals that are still on their way. */
    for (int i = 0; i < 5000 && taken[TO_THREAD] != shared->sent[TO_THREAD]; i++)
        nap(INTERVAL_NS);
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    epoch_open(argv[1]);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return 2;
    struct sigaction action = {.sa_sigaction = on_queued, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigset_t all, own, term;
    sigemptyset(&all);
    sigaddset(&all, SIGTERM);
    for (int i = 1; i <= KINDS + 1; i++)
        sigaddset(&all, SIGRTMIN + i);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    for (int kind = 0; kind < KINDS; kind++)
        sigaction(SIGRTMIN + 1 + kind, &action, NULL);
    action.sa_sigaction = on_timer;
    sigaction(SIGRTMIN + 1 + TIMER, &action, NULL);
    pthread_t handle;
    pthread_create(&handle, NULL, worker, NULL);
    while (!tid_of_worker)
        nap(INTERVAL_NS);
    pid_t pid = getpid(), child = fork();
    if (child == 0) {
        send_all(pid, tid_of_worker);
        _exit(0);
    }
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 1 + TIMER};
    struct itimerspec each = {{0, INTERVAL_NS}, {0, INTERVAL_NS}}, none = {{0, 0}, {0, 0}};
    if (child < 0 || timer_create(CLOCK_MONOTONIC, &event, &timer) != 0)
        return 2;
    int64_t start = now_ns();
    timer_settime(timer, 0, &each, NULL);
    own = all;
    sigdelset(&own, SIGRTMIN + 1 + TO_THREAD);
    sigdelset(&own, SIGTERM);
    puts("ready");
    fflush(stdout);
    /* Received while it runs and while it sleeps, so both are interrupted. */
    pthread_sigmask(SIG_UNBLOCK, &own, NULL);
    struct timespec at_once = {0, 0};
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    while (sigtimedwait(&term, NULL, &at_once) != SIGTERM)
        nap(3 * INTERVAL_NS);
    /* The timer's last signal may be delayed. */
    timer_settime(timer, 0, &none, NULL);
    int64_t end = now_ns();
    shared->stop = 1;
    int status;
    while (waitpid(child, &status, 0) != child)
        ;
    if (status != 0)
        wrong("sender", status);
    for (int kind = 0; kind < KINDS; kind++) {
        for (int i = 0; i < 5000 && taken[kind] != shared->sent[kind]; i++)
            nap(INTERVAL_NS);
        if (taken[kind] != shared->sent[kind])
            wrong("taken", taken[kind] - shared->sent[kind]);
    }
    stop = 1;
    pthread_join(handle, NULL);
    long due = (long)((end - start) / INTERVAL_NS);
    if (expired < due - 2 || expired > due + 1)
        wrong("expired", expired - due);
    print_counts(&counts);
    printf(" expired %ld full %ld taken %ld\n", expired, shared->full, taken[0]);
    return 0;
}
