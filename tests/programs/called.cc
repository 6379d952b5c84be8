/* Calls functions from each other in every way that a stack allows: directly and through functions
 * that are not measured, by recursion and tail calls, from handlers of signals, in coroutines and
 * threads, after exceptions and jumps.
 *
 *     called [ROUNDS [THREADS [coroutines | again]]]
 *
 * With `again` it does not end.
 */
#include <alloca.h>
#include <csetjmp>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <pthread.h>
#include <thread>
#include <ucontext.h>
#include <vector>

#define MEASURED extern "C" __attribute__((noinline, noclone))
#define NOINLINE __attribute__((noinline, noclone))

static thread_local volatile long sink;

MEASURED void leaf(long x)
{
    sink += x;
}

MEASURED void inner(long x)
{
    leaf(x);
    leaf(x + 1);
    sink++;
}

/* Frames that are not measured, and of different sizes. */
NOINLINE static void descend(int depth, long x, void (*last)(long))
{
    volatile char *room = (char *)alloca(16 + x % 7 * 48);
    room[0] = 1;
    if (depth > 0)
        descend(depth - 1, x, last);
    else
        last(x);
    sink += room[0];
}

MEASURED void recursive(long n)
{
    if (n > 0)
        recursive(n - 1);
    leaf(n);
    sink++;
}

MEASURED void tail_target(long x)
{
    leaf(x);
    sink++;
}

MEASURED void tail_caller(long x)
{
    sink++;
    tail_target(x);
}

MEASURED void tail_first(long x)
{
    sink++;
    tail_caller(x);
}

MEASURED void throwing(long x)
{
    leaf(x);
    if (x % 3 == 0)
        throw x;
    sink++;
}

MEASURED void thrown_through(long x)
{
    descend(int(x % 4), x, throwing);
    leaf(x);
}

MEASURED void catching(long x)
{
    try {
        thrown_through(x);
    } catch (long thrown) {
        descend(int(thrown % 5), thrown, inner);
    }
    leaf(x);
}

static thread_local jmp_buf place;

MEASURED void jumping(long x)
{
    leaf(x);
    if (x % 2 == 0)
        longjmp(place, 1);
    sink++;
}

MEASURED void jumped_over(long x)
{
    descend(int(x % 5), x, jumping);
    sink++;
}

MEASURED void landing(long x)
{
    if (setjmp(place) == 0)
        jumped_over(x);
    descend(int(x % 9), x, inner);
}

MEASURED void handled(long x)
{
    leaf(x);
    sink++;
}

static void handler(int)
{
    descend(2, 3, handled);
}

MEASURED void raising(long)
{
    raise(SIGUSR1);
    raise(SIGUSR2);
    leaf(1);
}

struct coroutine {
    ucontext_t here, there;
    long rounds;
    void (*work)(long);
    std::vector<char> stack = std::vector<char>(256 << 10);
};

static thread_local coroutine *current;

static void begin()
{
    coroutine *own = current;
    for (long round = 0; round < own->rounds; round++) {
        own->work(round);
        swapcontext(&own->here, &own->there);
        current = own;
    }
    swapcontext(&own->here, &own->there);
}

MEASURED void first_work(long x)
{
    descend(int(x % 3), x, inner);
    sink++;
}

MEASURED void second_work(long x)
{
    leaf(x);
    recursive(x % 3);
    sink++;
}

MEASURED void resuming(long rounds)
{
    coroutine both[2];
    for (int number = 0; number < 2; number++) {
        coroutine &one = both[number];
        getcontext(&one.here);
        one.here.uc_stack.ss_sp = one.stack.data();
        one.here.uc_stack.ss_size = one.stack.size();
        one.rounds = rounds;
        one.work = number ? second_work : first_work;
        makecontext(&one.here, begin, 0);
    }
    for (long round = 0; round < rounds; round++)
        for (coroutine &one : both) {
            current = &one;
            swapcontext(&one.there, &one.here);
            leaf(round);
        }
}

MEASURED void rounds(long many)
{
    for (long x = 0; x < many; x++) {
        inner(x);
        descend(int(x % 40), x, inner);
        recursive(x % 6);
        tail_first(x);
        catching(x);
        landing(x);
        if (x % 16 == 0)
            raising(x);
    }
}

static bool has_coroutines;

static void work(long many)
{
    stack_t alternate = {};
    std::vector<char> room(64 << 10);
    alternate.ss_sp = room.data();
    alternate.ss_size = room.size();
    sigaltstack(&alternate, nullptr);
    rounds(many);
    if (has_coroutines)
        resuming(many);
    rounds(many);
    alternate.ss_flags = SS_DISABLE;
    sigaltstack(&alternate, nullptr);
}

int main(int argc, char **argv)
{
    long many = argc > 1 ? atol(argv[1]) : 300;
    int threads = argc > 2 ? atoi(argv[2]) : 1;
    has_coroutines = argc > 3 && !strcmp(argv[3], "coroutines");
    struct sigaction action = {};
    action.sa_handler = handler;
    sigaction(SIGUSR1, &action, nullptr);
    action.sa_flags = SA_ONSTACK;
    sigaction(SIGUSR2, &action, nullptr);
    std::vector<std::thread> others;
    for (int number = 1; number < threads; number++)
        others.emplace_back(work, many);
    do
        work(many);
    while (argc > 3 && !strcmp(argv[3], "again"));
    for (std::thread &other : others)
        other.join();
}
