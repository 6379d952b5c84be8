/* Calls functions that stall at known calls, and logs its calls by its own clocks.
 *
 *     single_calls stall THREADS CALLS | recurse | throw | nest THREADS TURNS | churn THREADS CALLS
 *     single_calls fork | wait | fibers FIBERS CALLS
 *
 * Lines: `call FUNCTION TID ARG1 ARG2 RET BEFORE AFTER CPU SLEPT`. BEFORE and AFTER are readings of
 * CLOCK_MONOTONIC around the call, in ns. CPU is the growth of the thread's CPU time between them.
 * SLEPT is the time that the call sleeps at least. RET is `thrown` if the call throws.
 */
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <pthread.h>
#include <stdexcept>
#include <string>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <ucontext.h>
#include <unistd.h>
#include <vector>

#define NOINLINE __attribute__((noinline, noclone))

static long read_clock(clockid_t clock)
{
    timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}

struct line {
    const char *function;
    long arg1, arg2, ret, before, after, cpu, slept;
    bool thrown;
};

/* The calls of a thread. */
struct log_of_thread {
    std::vector<line> lines;
    ~log_of_thread()
    {
        std::string text;
        for (const line &l : lines) {
            char buffer[256];
            std::string ret = l.thrown ? "thrown" : std::to_string(l.ret);
            snprintf(buffer, sizeof buffer, "call %s %ld %ld %ld %s %ld %ld %ld %ld\n", l.function,
                     syscall(SYS_gettid), l.arg1, l.arg2, ret.c_str(), l.before, l.after, l.cpu,
                     l.slept);
            text += buffer;
        }
        fwrite(text.data(), 1, text.size(), stdout);
        fflush(stdout);
    }
};

static thread_local log_of_thread logged;

/* Makes a call and logs it, if it takes at least `least` ns. */
template <typename Call>
static long timed(const char *function, long arg1, long arg2, long slept, long least, Call call)
{
    line l = {function, arg1, arg2, 0, 0, 0, 0, slept, false};
    long cpu = read_clock(CLOCK_THREAD_CPUTIME_ID);
    l.before = read_clock(CLOCK_MONOTONIC);
    try {
        l.ret = call();
    } catch (const std::runtime_error &) {
        l.thrown = true;
    }
    l.after = read_clock(CLOCK_MONOTONIC);
    l.cpu = read_clock(CLOCK_THREAD_CPUTIME_ID) - cpu;
    if (l.after - l.before >= least)
        logged.lines.push_back(l);
    return l.ret;
}

static const long MS = 1000000;

extern "C" NOINLINE int nap(int ms)
{
    timespec t = {0, ms * MS};
    nanosleep(&t, nullptr);
    return -ms;
}

static long nap_timed(int ms)
{
    return timed("nap", ms, 0, ms * MS, 0, [=] { return nap(ms); });
}

/* The calls of a thread that stall, and for how long. */
static int stall_ms(int thread, int number, int calls)
{
    if (number == calls / 3 + thread)
        return 20 + 6 * thread;
    return number == calls / 2 + 2 * thread ? 15 + 5 * thread : 0;
}

extern "C" NOINLINE long work(int thread, short number, int ms)
{
    if (ms > 0)
        nap_timed(ms);
    asm volatile("" ::: "memory");
    return thread * 1000000L - number;
}

extern "C" NOINLINE long even(int thread, int number, int ms)
{
    long result = work(thread, (short)number, ms);
    asm volatile("" ::: "memory");
    return result;
}

extern "C" NOINLINE long odd(int thread, int number, int ms)
{
    long result = work(thread, (short)number, ms);
    asm volatile("" ::: "memory");
    return result;
}

static void stall(int thread, int calls)
{
    for (int i = 0; i < calls; i++) {
        int ms = stall_ms(thread, i, calls);
        timed("work", thread, i, ms * MS, MS,
              [=] { return thread % 2 ? odd(thread, i, ms) : even(thread, i, ms); });
    }
}

extern "C" NOINLINE int sink(int depth)
{
    nap_timed(4);
    if (depth > 0)
        timed("sink", depth - 1, 0, depth * 4 * MS, 0, [=] { return sink(depth - 1); });
    asm volatile("" ::: "memory");
    return depth * 10;
}

extern "C" NOINLINE int thrower(int number)
{
    nap_timed(number % 2 ? 40 : 5);
    if (number % 2)
        throw std::runtime_error("left");
    return number;
}

extern "C" NOINLINE int leaf(int number)
{
    for (volatile int i = 0; i < number % 50; i++)
        ;
    return number + 1;
}

extern "C" NOINLINE int middle(int turn, int part)
{
    int number = turn * 3 + part;
    timed("leaf", number, 0, 0, 0, [=] { return leaf(number); });
    if (turn % 64 == 0 && part == 1)
        nap_timed(1);
    timed("leaf", -number, 0, 0, 0, [=] { return leaf(-number); });
    return number;
}

extern "C" NOINLINE int outer(int turn)
{
    for (int part = 0; part < 3; part++)
        timed("middle", turn, part, 0, 0, [=] { return middle(turn, part); });
    return turn;
}

static void nest(int turns)
{
    for (int turn = 0; turn < turns; turn++)
        timed("outer", turn, 0, 0, 0, [=] { return outer(turn); });
}

/* Threads of which none ends before all have worked. */
template <typename Work> static void in_threads(int threads, Work work)
{
    std::vector<std::thread> all;
    pthread_barrier_t worked;
    pthread_barrier_init(&worked, nullptr, threads);
    for (int thread = 0; thread < threads; thread++)
        all.emplace_back([=, &worked] {
            work(thread);
            pthread_barrier_wait(&worked);
        });
    for (std::thread &thread : all)
        thread.join();
}

static ucontext_t scheduler;
static std::vector<ucontext_t> fibers;

/* A call during which other fibers run on the thread. */
extern "C" NOINLINE long held(int fiber, int number)
{
    swapcontext(&fibers[fiber], &scheduler);
    return fiber * 1000L + number;
}

static void run_fiber(int fiber, int calls)
{
    for (int number = 0; number < calls; number++)
        timed("held", fiber, number, 0, 0, [=] { return held(fiber, number); });
    swapcontext(&fibers[fiber], &scheduler);
}

static void in_fibers(int count, int calls)
{
    static const size_t STACK = 1 << 18;
    fibers.resize(count);
    std::vector<std::vector<char>> stacks(count, std::vector<char>(STACK));
    for (int fiber = 0; fiber < count; fiber++) {
        getcontext(&fibers[fiber]);
        fibers[fiber].uc_stack.ss_sp = stacks[fiber].data();
        fibers[fiber].uc_stack.ss_size = STACK;
        makecontext(&fibers[fiber], (void (*)())run_fiber, 2, fiber, calls);
    }
    for (int turn = 0; turn <= calls; turn++)
        for (int fiber = 0; fiber < count; fiber++)
            swapcontext(&scheduler, &fibers[fiber]);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    int threads = argc > 2 ? atoi(argv[2]) : 1, calls = argc > 3 ? atoi(argv[3]) : 1000;
    if (!strcmp(what, "stall")) {
        in_threads(threads, [=](int thread) { stall(thread, calls); });
    } else if (!strcmp(what, "recurse")) {
        timed("sink", 5, 0, 24 * MS, 0, [] { return sink(5); });
    } else if (!strcmp(what, "throw")) {
        for (int i = 0; i < 6; i++)
            timed("thrower", i, 0, (i % 2 ? 40 : 5) * MS, 0, [=] { return thrower(i); });
    } else if (!strcmp(what, "nest")) {
        in_threads(threads, [=](int) { nest(calls); });
    } else if (!strcmp(what, "churn")) {
        /* Threads that begin after others have ended. */
        for (int thread = 0; thread < threads; thread++)
            in_threads(1, [=](int) { stall(thread, calls); });
    } else if (!strcmp(what, "fork")) {
        /* A child, and the process itself, on threads of their own. */
        pid_t child = fork();
        int depth = child ? 3 : 4;
        in_threads(1, [=](int) {
            timed("sink", depth, 0, 0, 0, [=] { return sink(depth); });
        });
        int status = 0;
        if (child && (waitpid(child, &status, 0) != child || status))
            return 1;
    } else if (!strcmp(what, "fibers")) {
        in_fibers(threads, calls);
    } else if (!strcmp(what, "wait")) {
        /* Some calls after each SIGUSR1, until SIGTERM. */
        sigset_t signals;
        int got;
        sigemptyset(&signals);
        sigaddset(&signals, SIGUSR1);
        sigaddset(&signals, SIGTERM);
        sigprocmask(SIG_BLOCK, &signals, nullptr);
        puts("ready");
        for (int turn = 1;; turn++) {
            fflush(stdout);
            sigwait(&signals, &got);
            if (got == SIGTERM)
                break;
            stall(turn, 300);
            printf("waits %d\n", turn);
        }
        logged.lines.clear();
        puts("ok");
    } else {
        return 2;
    }
    return 0;
}
