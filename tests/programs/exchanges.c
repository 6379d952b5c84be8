/* A function whose counters are better at other places than expected: what is taken most often is
   out of line. Between its steps it waits in calls.

   `exchanges ROUNDS THREADS INTERVAL`: each thread makes ROUNDS times 64 calls, or goes on until
   SIGTERM if that is 0. A timer signal comes each INTERVAL microseconds, if that is not 0, and its
   handler makes 64 calls. Prints `ready`, and at the end `ok` with the number of calls.

   With `forks` behind that, another thread makes children with 64 calls each. With `contexts`, the
   calls are made in three contexts, and the handler switches from one to the next. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

static long rounds;
static volatile sig_atomic_t ends;
static long calls;

__attribute__((noinline)) static unsigned wait_a_little(unsigned value)
{
    for (int i = 0; i < 60; i++)
        __asm__ volatile("" : "+r"(value));
    return value * 1664525 + 1013904223;
}

__attribute__((noinline)) static unsigned rarely(unsigned value)
{
    __asm__ volatile("" : "+r"(value));
    return value ^ 0x55;
}

__attribute__((noinline)) unsigned decides(unsigned value)
{
    for (int step = 0; step < 16; step++) {
        value = wait_a_little(value);
        unsigned of = value >> 24;
        if (__builtin_expect(of != 3, 0)) {
            if (__builtin_expect(of & 64, 0))
                value += 3;
            if (__builtin_expect(of >= 8, 0)) {
                value ^= of;
                if (__builtin_expect(of != 200, 0))
                    value += 7;
                else
                    value = rarely(value);
            }
        } else {
            value = rarely(value) + rarely(step);
        }
        switch (of & 15) {
        case 0: value += 11; break;
        case 1: value ^= 12; break;
        case 2: value = rarely(value); break;
        case 3: value -= 9; break;
        default: value = value * 3 + 1;
        }
    }
    return value;
}

/* The same ways each time. */
static void round_of_calls(void)
{
    for (unsigned number = 0; number < 64; number++)
        decides(number * 2654435761u);
    __atomic_fetch_add(&calls, 64, __ATOMIC_RELAXED);
}

static void *thread(void *unused)
{
    (void)unused;
    for (long round = 0; rounds ? round < rounds : !ends; round++)
        round_of_calls();
    return NULL;
}

enum { CONTEXTS = 3, STACK = 1 << 17 };
static ucontext_t contexts[CONTEXTS], first;
static volatile int present, ended[CONTEXTS];

static int next_context(void)
{
    for (int i = 1; i < CONTEXTS; i++)
        if (!ended[(present + i) % CONTEXTS])
            return (present + i) % CONTEXTS;
    return present;
}

static void switch_contexts(int signal)
{
    (void)signal;
    int own = present;
    present = next_context();
    if (present != own)
        swapcontext(&contexts[own], &contexts[present]);
}

static void let_alarms(int how)
{
    sigset_t alarms;
    sigemptyset(&alarms);
    sigaddset(&alarms, SIGALRM);
    sigprocmask(how, &alarms, NULL);
}

static void in_context(void)
{
    int own = present;
    let_alarms(SIG_UNBLOCK);
    thread(NULL);
    let_alarms(SIG_BLOCK);
    ended[own] = 1;
    present = next_context();
    setcontext(present == own ? &first : &contexts[present]);
}

static void run_contexts(void)
{
    static char stacks[CONTEXTS][STACK];
    let_alarms(SIG_BLOCK);
    signal(SIGALRM, switch_contexts);
    for (int i = 0; i < CONTEXTS; i++) {
        getcontext(&contexts[i]);
        contexts[i].uc_stack.ss_sp = stacks[i];
        contexts[i].uc_stack.ss_size = STACK;
        makecontext(&contexts[i], in_context, 0);
    }
    swapcontext(&first, &contexts[0]);
}

static void *make_children(void *over)
{
    while (!__atomic_load_n((int *)over, __ATOMIC_RELAXED)) {
        pid_t child = fork();
        if (child == 0) {
            round_of_calls();
            _exit(0);
        }
        waitpid(child, NULL, 0);
        __atomic_fetch_add(&calls, 64, __ATOMIC_RELAXED);
        usleep(2000);
    }
    return NULL;
}

static void on_alarm(int signal)
{
    (void)signal;
    round_of_calls();
}

static void on_term(int signal)
{
    (void)signal;
    ends = 1;
}

static void say_ready(void)
{
    puts("ready");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    rounds = argc > 1 ? atol(argv[1]) : 1;
    int threads = argc > 2 ? atoi(argv[2]) : 1;
    int interval = argc > 3 ? atoi(argv[3]) : 0;
    const char *also = argc > 4 ? argv[4] : "";
    int over = 0;
    pthread_t all[64], forking;
    struct itimerval often = {{0, interval}, {0, interval}};
    signal(SIGALRM, on_alarm);
    signal(SIGTERM, on_term);
    setitimer(ITIMER_REAL, &often, NULL);
    if (!strcmp(also, "contexts")) {
        say_ready();
        run_contexts();
        threads = 0;
    }
    if (!strcmp(also, "forks"))
        pthread_create(&forking, NULL, make_children, &over);
    for (int i = 0; i < threads; i++)
        pthread_create(&all[i], NULL, thread, NULL);
    if (threads)
        say_ready();
    for (int i = 0; i < threads; i++)
        pthread_join(all[i], NULL);
    signal(SIGALRM, SIG_IGN);
    __atomic_store_n(&over, 1, __ATOMIC_RELAXED);
    if (!strcmp(also, "forks"))
        pthread_join(forking, NULL);
    printf("ok %ld\n", __atomic_load_n(&calls, __ATOMIC_RELAXED));
    return 0;
}
