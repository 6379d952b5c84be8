/* A program under a seccomp filter that turns chosen system calls into SIGSYS, with a handler for
 * it, as sandboxes have.
 *
 *     filtered NUMBER...
 *     filtered late NUMBER...
 *
 * Calls `work` in a loop, and makes one of the chosen calls now and then, to check that its handler
 * is still installed. With `late` it installs the filter after SIGUSR1, and new threads then call
 * `work` as well. Ends on SIGTERM with `ok calls N trapped N`, or `wrong WHY`. */
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))

enum { THREADS = 20 };

static volatile sig_atomic_t stop, trapped, foreign;
static long expected = -1;

NOINLINE uint64_t work(uint64_t x)
{
    return (x ^ x >> 9) * 5 + 1;
}

static void on_term(int signal)
{
    (void)signal;
    stop = 1;
}

static void on_trap(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    (void)context;
    if (info->si_syscall == expected)
        trapped++;
    else
        foreign = info->si_syscall;
}

static void *works(void *together)
{
    uint64_t x = 1;
    for (int i = 0; i < 100; i++)
        x = work(x);
    pthread_barrier_wait(together);
    return (void *)(uintptr_t)(x == 0);
}

static void on_threads(void)
{
    pthread_t threads[THREADS];
    pthread_barrier_t together;
    pthread_barrier_init(&together, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, works, &together) != 0)
            abort();
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

int main(int argc, char **argv)
{
    int late = argc > 1 && strcmp(argv[1], "late") == 0;
    sigset_t go;
    sigemptyset(&go);
    sigaddset(&go, SIGUSR1);
    sigprocmask(SIG_BLOCK, &go, NULL);
    struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};
    sigaction(SIGSYS, &action, NULL);
    signal(SIGTERM, on_term);
    struct sock_filter code[70];
    int n = 0;
    code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int i = 1 + late; i < argc && n < 66; i++) {
        uint32_t number = (uint32_t)atol(argv[i]);
        code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1);
        code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP);
    }
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog filter = {.len = (unsigned short)n, .filter = code};
    puts("ready");
    fflush(stdout);
    if (late)
        sigwaitinfo(&go, NULL);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (argc > 1 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
        puts("wrong: no filter");
        return 1;
    }
    uint64_t x = 1, y = 1, calls = 0;
    if (late) {
        on_threads();
        calls += THREADS * 100;
    }
    long own = 0;
    while (!stop) {
        for (int i = 0; i < 200; i++) {
            x = work(x);
            y = (y ^ y >> 9) * 5 + 1;
            calls++;
        }
        if (argc > 1) {
            expected = atol(argv[1 + late]);
            /* Arguments without effect if the call is really made. */
            syscall(expected, -1L, 0L, 0L, 0L, -1L, 0L);
            own++;
        }
        struct timespec pause = {0, 100000};
        nanosleep(&pause, NULL);
    }
    if (x != y || foreign != 0 || trapped != own)
        printf("wrong: %d foreign %ld, trapped %ld of %ld\n", x != y, (long)foreign, (long)trapped, own);
    else
        printf("ok calls %lu trapped %ld\n", (unsigned long)calls, own);
    return 0;
}
