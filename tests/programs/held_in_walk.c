/* A thread that is held in the middle of a walk of its stack.
 *
 * `step` is called on a stack of two pages whose upper page is removed during the call. A thread
 * that reads the frames there sleeps until the page is restored (userfaultfd(2)). Prints `ready`.
 * On SIGUSR1 it makes the call, and prints `held` once a thread sleeps there. The next SIGUSR1
 * restores the page and prints `on`. Ends with `ok` on SIGTERM.
 */
#include "gate.h"

#include <ucontext.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))

static ucontext_t own, other;
static struct gate gate;
static char copy[GATE_PAGE];
static volatile long sink;

NOINLINE void step(void)
{
    sink++;
}

/* Its frame reaches into the lower page, and the upper page is not needed until it returns. */
NOINLINE static void lower(void)
{
    volatile char room[GATE_PAGE];
    room[0] = 1;
    memcpy(copy, gate.page, GATE_PAGE);
    if (madvise(gate.page, GATE_PAGE, MADV_DONTNEED) < 0)
        gate_fail("madvise");
    step();
    sink += room[0];
}

NOINLINE static void upper(void)
{
    lower();
    sink++;
}

static void *calls(void *unused)
{
    await_test(SIGUSR1);
    swapcontext(&own, &other);
    return unused;
}

int main(void)
{
    await_nothing_yet();
    char *pages = mmap(NULL, 4 * GATE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                       -1, 0);
    if (pages == MAP_FAILED)
        gate_fail("mmap");
    gate = (struct gate){pages + 3 * GATE_PAGE, gate_descriptor()};
    gate_cover(gate.fd, gate.page, GATE_PAGE);
    /* The page exists until it is removed. */
    gate_open(&gate);
    getcontext(&other);
    other.uc_stack.ss_sp = pages;
    other.uc_stack.ss_size = 4 * GATE_PAGE;
    other.uc_link = &own;
    makecontext(&other, upper, 0);
    pthread_t thread;
    if (pthread_create(&thread, NULL, calls, NULL) != 0)
        gate_fail("pthread_create");
    say("ready");
    gate_await(&gate);
    say("held");
    await_test(SIGUSR1);
    struct uffdio_copy back = {
        .dst = (uintptr_t)gate.page,
        .src = (uintptr_t)copy,
        .len = GATE_PAGE,
    };
    if (ioctl(gate.fd, UFFDIO_COPY, &back) < 0)
        gate_fail("UFFDIO_COPY");
    pthread_join(thread, NULL);
    say("on");
    await_test(SIGTERM);
    say("ok");
    return 0;
}
