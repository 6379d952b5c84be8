/* Preempted user threads, each time with a different part of the stack in use, so that signal
 * frames overlap the remnants of earlier ones at all distances.
 *
 *     preempted_at_other_depths BYTES
 *
 * Each thread calls `outer`, which calls `work`, with up to BYTES more of its stack in use. After
 * SIGUSR1 no more are in use, and after the next one as before. Prints `ready`, and `shallow` once
 * no thread has more in use; ends with `ok SWITCHES` on SIGTERM. */
#define _GNU_SOURCE
enum { CONTEXTS = 8 };
#include "preempted.h"

#include <alloca.h>

enum { SLICE_US = 500, CALLS = 1000 };

static unsigned most;
static volatile sig_atomic_t is_shallow;
/* Threads that have noticed it. */
static int seen;

static void change(int signal)
{
    (void)signal;
    is_shallow = !is_shallow;
}

/* Calls with this many more bytes of the stack in use, which are not written. */
__attribute__((noinline, noclone, noipa)) static long deeper(long x, size_t bytes)
{
    volatile char *room = alloca(bytes);
    room[0] = 1;
    for (int i = 0; i < CALLS; i++)
        x = call_and_rest(x);
    return x;
}

static void body(int number)
{
    block(SIG_UNBLOCK);
    unsigned random = (unsigned)number;
    int was_shallow = 0;
    for (long x = 0; !ends;) {
        if (is_shallow != was_shallow) {
            was_shallow = !was_shallow;
            block(SIG_BLOCK);
            seen += was_shallow ? 1 : -1;
            if (seen == CONTEXTS) {
                puts("shallow");
                fflush(stdout);
            }
            block(SIG_UNBLOCK);
        }
        random = random * 1103515245 + 12345;
        x = deeper(x, was_shallow ? 1 : 1 + (random >> 16) % (most + 1));
    }
    say_ok();
}

int main(int argc, char **argv)
{
    most = argc > 1 ? (unsigned)atoi(argv[1]) : 0;
    struct sigaction changing = {.sa_handler = change, .sa_flags = SA_RESTART};
    sigaddset(&changing.sa_mask, SIGALRM);
    sigaction(SIGUSR1, &changing, NULL);
    return run_preempted(body, SLICE_US);
}
