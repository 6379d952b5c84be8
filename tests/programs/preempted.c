/* Preempted user threads that call `outer`, which calls `work`. `preempted MICROSECONDS` sets their
 * time slice. Prints `ready`; ends with `ok SWITCHES` on SIGTERM. */
#define _GNU_SOURCE
enum { CONTEXTS = 16 };
#include "preempted.h"

static void body(int number)
{
    (void)number;
    block(SIG_UNBLOCK);
    for (long x = 0; !ends;)
        x = call_and_rest(x);
    say_ok();
}

int main(int argc, char **argv)
{
    return run_preempted(body, argc > 1 ? atoi(argv[1]) : 1000);
}
