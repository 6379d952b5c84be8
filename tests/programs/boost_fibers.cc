// Fibers of Boost.Context, with calls of `work` on their stacks and on the thread's own stack, on
// one thread and on several, between which a fiber moves. Prints its calls.
#include <boost/context/fiber.hpp>
#include <cstdio>
#include <thread>

namespace context = boost::context;

#define NOINLINE __attribute__((noinline, noclone, noipa))

static long calls;

extern "C" NOINLINE long work(long x)
{
    calls++;
    return x * 3 + 1;
}

NOINLINE static long inner(long x) { return work(x) + 1; }

static context::fiber make(long &sum)
{
    return context::fiber([&sum](context::fiber &&caller) {
        for (long k = 0; k < 10; k++) {
            sum += inner(k);
            caller = std::move(caller).resume();
        }
        return std::move(caller);
    });
}

int main()
{
    long sum = 0;
    for (int round = 0; round < 50; round++) {
        auto fiber = make(sum);
        while (fiber) {
            fiber = std::move(fiber).resume();
            sum += inner(1);
        }
    }
    for (int round = 0; round < 50; round++) {
        auto fiber = make(sum);
        while (fiber)
            std::thread([&] { fiber = std::move(fiber).resume(); }).join();
    }
    std::printf("calls work %ld\nsum %ld\n", calls, sum);
}
