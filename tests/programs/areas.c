/* Calls that need a part of every area of a session, in steps that the test starts: few paths, many
 * and deep paths, values of every size, threads, children. Prints `step N` after each step and
 * `calls NAME N` at the end. `levels N` adds 2^N paths to `leaf` to the second step, some of them
 * on each of six threads. `alone N` adds as many paths without threads and children, and allocates
 * nothing after it is ready. `children N` forks N children at the end; all wait for the test before
 * they make any call. */
#include "gate.h"
#include <sys/wait.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))

static long calls_leaf, calls_spread, calls_deep;

NOINLINE long leaf(long x)
{
    __atomic_fetch_add(&calls_leaf, 1, __ATOMIC_RELAXED);
    return x * 3 + 1;
}

NOINLINE long spread(long x)
{
    calls_spread++;
    return x ^ 5;
}

/* Every call has its own frame. */
NOINLINE __attribute__((optimize("no-optimize-sibling-calls"))) long deep(long n)
{
    calls_deep++;
    return n == 0 ? leaf(n) : deep(n - 1) + 1;
}

/* Only the frame pointer leads to its caller. */
NOINLINE long framed(long n)
{
    volatile char room[n];
    room[0] = 1;
    return leaf(n) + room[0];
}

static int levels;

/* Two call sites per level. */
NOINLINE __attribute__((optimize("no-optimize-sibling-calls"))) long walk(int level, unsigned bits)
{
    if (level == 0)
        return leaf(bits);
    if (bits & 1)
        return walk(level - 1, bits >> 1) + 1;
    return walk(level - 1, bits >> 1) - 1;
}

static void paths(int some)
{
    for (unsigned i = 0; some > 0 && i < 1u << some; i++)
        walk(some, i);
}

static void *thread(void *unused)
{
    (void)unused;
    for (int i = 0; i < 3; i++)
        leaf(i);
    paths(levels - 4);
    return NULL;
}

static void few(void)
{
    for (int i = 0; i < 3; i++)
        leaf(i);
    spread(1);
    deep(3);
    framed(64);
}

static void many(void)
{
    for (int i = 0; i < 60; i++)
        deep(i);
    for (int i = 0; i < 62; i++)
        for (int k = 0; k < 2; k++)
            spread(1L << i);
    for (int i = 0; i < 40; i++)
        framed(16 + i);
}

static void threads(void)
{
    pthread_t ids[6];
    for (int i = 0; i < 6; i++)
        if (pthread_create(&ids[i], NULL, thread, NULL) != 0)
            exit(2);
    for (int i = 0; i < 6; i++)
        pthread_join(ids[i], NULL);
}

static int ended_well(pid_t child)
{
    int status = 0;
    return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7;
}

/* Children that call before and after their parent does. */
static int children(void)
{
    int bad = 0;
    for (int i = 0; i < 3; i++) {
        pid_t child = fork();
        if (child == 0) {
            few();
            _exit(7);
        }
        leaf(i);
        bad += !ended_well(child);
    }
    return bad;
}

/* Children that all exist before the first of them calls anything. */
static int waiting_children(int count)
{
    pid_t all[64];
    int gate[2], bad = 0;
    char byte;
    if (pipe(gate) < 0)
        return 1;
    for (int i = 0; i < count; i++) {
        all[i] = fork();
        if (all[i] == 0) {
            close(gate[1]);
            if (read(gate[0], &byte, 1) != 0)
                _exit(1);
            few();
            many();
            _exit(7);
        }
    }
    say("forked");
    await_test(SIGUSR1);
    close(gate[1]);
    for (int i = 0; i < count; i++)
        bad += !ended_well(all[i]);
    return bad;
}

int main(int argc, char **argv)
{
    int bad = 0;
    await_nothing_yet();
    int alone = argc > 2 && strcmp(argv[1], "alone") == 0;
    if (alone) {
        few();
        many();
        calls_leaf = calls_spread = calls_deep = 0;
    }
    say("ready");
    await_test(SIGUSR1);
    if (argc > 2 && strcmp(argv[1], "children") != 0)
        levels = atoi(argv[2]);
    if (argc > 2 && levels == 0) {
        bad = waiting_children(atoi(argv[2]));
    } else {
        few();
        say("step 1");
        await_test(SIGUSR1);
        many();
        paths(levels);
        if (!alone) {
            threads();
            bad = children();
        }
        say("step 2");
        await_test(SIGUSR1);
        few();
    }
    printf("calls leaf %ld\ncalls spread %ld\ncalls deep %ld\nbad %d\n", calls_leaf, calls_spread,
           calls_deep, bad);
    say("step 3");
    await_test(SIGTERM);
    say("ended");
    return 0;
}
