// Loops that are left in each way, with the number of their entries by the program's own count.
// Each has an iteration at least.
// usage: timed_loops ROUNDS [THREADS]

#include <atomic>
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <sys/wait.h>
#include <thread>
#include <ucontext.h>
#include <unistd.h>
#include <vector>

#define NOINLINE __attribute__((noinline, noclone))

static volatile long zero;

struct Own {
    std::atomic<long> entered{0};
    // Left by an exception or longjmp that no code of the function catches.
    std::atomic<long> left{0};
    std::atomic<long> ns{0};
};
static Own outer, inner, caught_outside, caught_inside, passed_on, jumped, unannounced, recursive,
    sleeping, handler, switching;

static long now() {
    timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000000000L + at.tv_nsec;
}

extern "C" NOINLINE long leaf(long n) {
    asm volatile("" : "+r"(n));
    return n + zero;
}

extern "C" NOINLINE void may_throw(bool throws) {
    if (throws)
        throw 1;
}

extern "C" NOINLINE long nested(long a, long b) {
    long sum = 0;
    outer.entered++;
    for (long i = 0; i < a; i++) { // loop outer
        inner.entered++;
        for (long j = 0; j < b; j++) // loop inner
            sum += leaf(j);
    }
    return sum;
}

extern "C" NOINLINE long catches_outside(long n, long at) {
    long sum = 0;
    caught_outside.entered++;
    try {
        for (long i = 0; i < n; i++) { // loop caught_outside
            may_throw(i == at);
            sum += leaf(i);
        }
    } catch (int) {
        sum -= leaf(1);
    }
    return sum + leaf(2);
}

extern "C" NOINLINE long catches_inside(long n) {
    long sum = 0;
    caught_inside.entered++;
    for (long i = 0; i < n; i++) { // loop caught_inside
        try {
            may_throw(i & 1);
            sum += leaf(i);
        } catch (int) {
            sum -= leaf(1);
        }
    }
    return sum + leaf(3);
}

extern "C" NOINLINE long passes_on(long n, long at) {
    long sum = leaf(4);
    passed_on.entered++;
    passed_on.left += at < n;
    for (long i = 0; i < n; i++) { // loop passed_on
        may_throw(i == at);
        sum += leaf(i);
    }
    return sum + leaf(5);
}

static thread_local jmp_buf back;

extern "C" NOINLINE void may_jump(bool jumps) {
    if (jumps)
        longjmp(back, 1);
}

extern "C" NOINLINE long jumps_out(long n, long at) {
    long sum = leaf(6);
    jumped.entered++;
    jumped.left += at < n;
    for (long i = 0; i < n; i++) { // loop jumped
        may_jump(i == at);
        sum += leaf(i);
    }
    return sum + leaf(7);
}

// A jump that no function of a library makes.
static thread_local void *place[5];

extern "C" NOINLINE void may_jump_unannounced(bool jumps) {
    if (jumps)
        __builtin_longjmp(place, 1);
}

extern "C" NOINLINE long jumps_unannounced(long n, long at) {
    long sum = leaf(14);
    unannounced.entered++;
    unannounced.left += at < n;
    for (long i = 0; i < n; i++) { // loop unannounced
        may_jump_unannounced(i == at);
        sum += leaf(i);
    }
    return sum + leaf(15);
}

extern "C" NOINLINE long recurses(long depth) {
    long sum = leaf(depth);
    long two = 2 + zero;
    recursive.entered++;
    for (long i = 0; i < two; i++) { // loop recursive
        sum += depth ? recurses(depth - 1) : leaf(i);
    }
    return sum + leaf(8);
}

extern "C" NOINLINE long sleeps(long n) {
    long sum = leaf(9);
    sleeping.entered++;
    long begun = now();
    for (long i = 0; i < n; i++) { // loop sleeping
        usleep(1000);
        sum += leaf(i);
    }
    sleeping.ns += now() - begun;
    return sum + leaf(10);
}

extern "C" NOINLINE void handles(int) {
    long sum = leaf(11);
    long three = 3 + zero;
    handler.entered++;
    for (long i = 0; i < three; i++) // loop handler
        sum += leaf(i);
    leaf(sum);
}

static thread_local ucontext_t main_context, other_context;
static thread_local long switches;

extern "C" NOINLINE void switches_stacks(ucontext_t *own, ucontext_t *other, long n) {
    leaf(12);
    switching.entered++;
    for (long i = 0; i < n; i++) { // loop switching
        leaf(i);
        swapcontext(own, other);
    }
    leaf(13);
}

static void coroutine() {
    switches_stacks(&other_context, &main_context, switches);
    setcontext(&main_context);
}

static void switch_stacks(long n) {
    std::vector<char> stack(128 * 1024);
    getcontext(&other_context);
    other_context.uc_stack.ss_sp = stack.data();
    other_context.uc_stack.ss_size = stack.size();
    other_context.uc_link = nullptr;
    switches = n;
    makecontext(&other_context, coroutine, 0);
    switches_stacks(&main_context, &other_context, n + 1);
}

static void jump(long n, long at) {
    if (!setjmp(back))
        jumps_out(n, at);
}

static NOINLINE void jump_unannounced(long n, long at) {
    if (!__builtin_setjmp(place))
        jumps_unannounced(n, at);
}

static void all(long rounds) {
    for (long i = 0; i < rounds; i++) {
        nested(1 + i % 4, 1 + i % 3);
        catches_outside(5, i % 8);
        catches_inside(1 + i % 4);
        try {
            passes_on(5, i % 8);
        } catch (int) {
        }
        jump(5, i % 8);
        jump_unannounced(5, i % 8);
        recurses(3);
        raise(SIGUSR1);
        if (i % 50 == 0)
            sleeps(2);
        if (i % 10 == 0)
            switch_stacks(3);
    }
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 100;
    int threads = argc > 2 ? atoi(argv[2]) : 0;
    signal(SIGUSR1, handles);
    puts("ready");
    fflush(stdout);
    std::vector<std::thread> others;
    for (int i = 0; i < threads; i++)
        others.emplace_back(all, rounds);
    all(rounds);
    for (std::thread &other : others)
        other.join();
    pid_t child = fork();
    if (child == 0) {
        nested(3, 3);
        _exit(0);
    }
    waitpid(child, nullptr, 0);
    struct {
        const char *name;
        Own &own;
    } of[] = {{"outer", outer},         {"inner", inner},   {"caught_outside", caught_outside},
              {"caught_inside", caught_inside}, {"passed_on", passed_on}, {"jumped", jumped},
              {"unannounced", unannounced},
              {"recursive", recursive}, {"sleeping", sleeping}, {"handler", handler},
              {"switching", switching}};
    for (auto &[name, own] : of)
        printf("%s %ld %ld %ld\n", name, own.entered.load(), own.left.load(), own.ns.load());
    return 0;
}
