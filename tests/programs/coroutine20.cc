// C++20 coroutines: `ns::f` is created 10 times and resumed 30 times, and `work` is called 20 times
// in its body.
#include <coroutine>
#include <cstdio>
#include <exception>

struct Task {
    struct promise_type {
        Task get_return_object()
        {
            return {std::coroutine_handle<promise_type>::from_promise(*this)};
        }
        std::suspend_always initial_suspend() noexcept
        {
            return {};
        }
        std::suspend_always final_suspend() noexcept
        {
            return {};
        }
        void return_void()
        {
        }
        void unhandled_exception()
        {
            std::terminate();
        }
    };
    std::coroutine_handle<promise_type> handle;
};

static long works;

extern "C" __attribute__((noinline)) void work(long x)
{
    works++;
    asm volatile("" ::"r"(x) : "memory");
}

namespace ns
{
__attribute__((noinline)) Task f(long x)
{
    work(x);
    co_await std::suspend_always{};
    work(x);
    co_await std::suspend_always{};
}
} // namespace ns

int main()
{
    long resumed = 0;
    for (long i = 0; i < 10; i++) {
        Task task = ns::f(i);
        while (!task.handle.done()) {
            task.handle.resume();
            resumed++;
        }
        task.handle.destroy();
    }
    std::printf("resumed %ld works %ld\n", resumed, works);
}
