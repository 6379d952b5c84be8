/* Calls of one function on many paths: by recursion, through inlined functions, on threads, from
 * signal handlers on another stack, and with exceptions on the way.
 *
 *     under
 *
 * Prints the calls of work that were made while a call of `via` was under way on the thread.
 */
#include <atomic>
#include <csignal>
#include <cstdio>
#include <stdexcept>
#include <thread>
#include <vector>

#define NOINLINE __attribute__((noinline, noclone))

static std::atomic<long> all, through;
static thread_local int within;

extern "C" NOINLINE void work(int n)
{
    all++;
    through += within > 0;
    if (n % 97 == 0)
        throw std::runtime_error("left");
}

extern "C" NOINLINE void deep(int depth, int n)
{
    if (depth > 0)
        deep(depth - 1, n);
    else
        work(n);
    __asm__ volatile("");
}

struct in_via {
    in_via() { within++; }
    ~in_via() { within--; }
};

extern "C" NOINLINE void via(int n)
{
    in_via here;
    deep(n % 4, n);
}

static inline __attribute__((always_inline)) void folded_in(int n)
{
    deep(n % 3, n);
    __asm__ volatile("");
}

extern "C" NOINLINE void other(int n)
{
    switch (n % 3) {
    case 0:
        via(n);
        break;
    case 1:
        folded_in(n);
        break;
    default:
        deep(2, n);
    }
    __asm__ volatile("");
}

static void handler(int)
{
    work(1);
    via(2);
}

static NOINLINE void in_thread(int number)
{
    std::vector<char> memory(1 << 16);
    stack_t stack = {};
    stack.ss_sp = memory.data();
    stack.ss_size = memory.size();
    sigaltstack(&stack, nullptr);
    for (int i = 0; i < 3000; i++) {
        try {
            if (i % 7 == 0)
                via(i + number);
            else if (i % 2)
                other(i);
            else
                deep(i % 6, i);
            if (i % 100 == 0)
                raise(SIGUSR1);
        } catch (const std::runtime_error &) {
        }
    }
    stack.ss_flags = SS_DISABLE;
    sigaltstack(&stack, nullptr);
}

int main()
{
    struct sigaction action = {};
    action.sa_handler = handler;
    action.sa_flags = SA_ONSTACK;
    sigaction(SIGUSR1, &action, nullptr);
    std::vector<std::thread> all_threads;
    for (int i = 0; i < 4; i++)
        all_threads.emplace_back(in_thread, i);
    in_thread(9);
    for (auto &one : all_threads)
        one.join();
    printf("all %ld\nthrough %ld\n", all.load(), through.load());
    return 0;
}
