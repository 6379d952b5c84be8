/* A program that waits, calls a function a known number of times, and waits again. On request it
 * runs under a seccomp filter that allows only the system calls that it makes.
 *
 *     allowed [errno|trap|kill]
 *
 * The word is the filter's answer to other calls. After SIGUSR1 it calls `work` CALLS times, and
 * prints `calls work N`. Ends on SIGTERM with `ok`. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))

enum { CALLS = 20000, MOST = 40 };

static volatile sig_atomic_t go, stop;

NOINLINE uint64_t work(uint64_t x) { return (x ^ x >> 9) * 5 + 1; }
NOINLINE uint64_t left(uint64_t x) { return work(x) + 1; }
NOINLINE uint64_t right(uint64_t x) { return work(x) ^ 3; }

static void on_signal(int signal)
{
    if (signal == SIGUSR1)
        go = 1;
    else
        stop = 1;
}

/* Writes without the C library's streams, which may make other system calls. */
static int say(const char *text)
{
    return write(1, text, strlen(text)) == (ssize_t)strlen(text);
}

static void rest(void)
{
    struct timespec pause = {0, 1000000};
    nanosleep(&pause, NULL);
}

static int filter(const char *answer)
{
    static const uint32_t made[] = {SYS_write, SYS_nanosleep, SYS_clock_nanosleep, SYS_restart_syscall,
                                    SYS_rt_sigreturn, SYS_exit_group};
    uint32_t other = SECCOMP_RET_KILL_PROCESS;
    if (strcmp(answer, "errno") == 0)
        other = SECCOMP_RET_ERRNO | EPERM;
    else if (strcmp(answer, "trap") == 0)
        other = SECCOMP_RET_TRAP;
    else if (strcmp(answer, "kill") != 0)
        return 0;
    struct sock_filter code[MOST];
    unsigned short n = 0;
    code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) {
        code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, made[i], 0, 1);
        code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    }
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, other);
    struct sock_fprog program = {.len = n, .filter = code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

int main(int argc, char **argv)
{
    signal(SIGUSR1, on_signal);
    signal(SIGTERM, on_signal);
    if (argc > 1 && !filter(argv[1]))
        return 2;
    if (!say("ready\n"))
        return 1;
    while (!go && !stop)
        rest();
    uint64_t x = 1;
    for (int i = 0; go && i < CALLS / 2; i++)
        x = right(left(x));
    char line[40];
    snprintf(line, sizeof line, "calls work %d\n", x == 0 ? 0 : CALLS);
    if (!say(line))
        return 1;
    while (!stop)
        rest();
    return !say("ok\n");
}
