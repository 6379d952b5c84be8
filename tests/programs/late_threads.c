/* Eight threads of the lowest priority (SCHED_IDLE) call `step` all the time. All threads of the
 * program share one processor. After SIGUSR1, 100 further threads are busy, and the eight get the
 * processor once in minutes. SIGUSR2 ends that. Prints `ready`, `busy` and `idle`, and ends with
 * `ok` on SIGTERM.
 */
#include "gate.h"

#include <sched.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))
#define SLOW 8
#define BUSY 100

static volatile long sink;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static volatile sig_atomic_t is_busy, ends;

NOINLINE void step(void)
{
    sink++;
}

static void *steps(void *unused)
{
    struct sched_param none = {0};
    if (pthread_setschedparam(pthread_self(), SCHED_IDLE, &none) != 0)
        gate_fail("SCHED_IDLE");
    while (!ends)
        step();
    return unused;
}

static void *spins(void *unused)
{
    while (!ends) {
        pthread_mutex_lock(&lock);
        while (!is_busy && !ends)
            pthread_cond_wait(&changed, &lock);
        pthread_mutex_unlock(&lock);
        while (is_busy && !ends)
            sink++;
    }
    return unused;
}

int main(void)
{
    cpu_set_t set, one;
    sigset_t awaited;
    pthread_t threads[SLOW + BUSY];
    CPU_ZERO(&set);
    CPU_ZERO(&one);
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        gate_fail("sched_getaffinity");
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &set)) {
            CPU_SET(cpu, &one);
            break;
        }
    if (sched_setaffinity(0, sizeof one, &one) != 0)
        gate_fail("sched_setaffinity");
    sigemptyset(&awaited);
    sigaddset(&awaited, SIGUSR1);
    sigaddset(&awaited, SIGUSR2);
    sigaddset(&awaited, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &awaited, NULL);
    for (int i = 0; i < SLOW + BUSY; i++)
        if (pthread_create(&threads[i], NULL, i < SLOW ? steps : spins, NULL) != 0)
            gate_fail("pthread_create");
    say("ready");
    while (!ends) {
        int signal;
        sigwait(&awaited, &signal);
        pthread_mutex_lock(&lock);
        is_busy = signal == SIGUSR1;
        ends = signal == SIGTERM;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
        if (!ends)
            say(is_busy ? "busy" : "idle");
    }
    for (int i = 0; i < SLOW + BUSY; i++)
        pthread_join(threads[i], NULL);
    say("ok");
    return 0;
}
