// Call paths into `geometry::area`: virtual calls, templates, lambdas, recursion, threads, and
// exceptions thrown in it and passing through it. Prints its own number of calls and a checksum.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#define NOINLINE __attribute__((noinline, noclone, noipa))

static std::atomic<long> calls{0}, caught{0}, destroyed{0};

namespace geometry {

NOINLINE static void check(long n)
{
    if (n % 7 == 6)
        throw std::runtime_error("bad " + std::to_string(n));
}

// One argument in 7 throws through this function; one in 11 throws from it.
NOINLINE long area(long n)
{
    calls.fetch_add(1, std::memory_order_relaxed);
    check(n);
    if (n % 11 == 10)
        throw n;
    return n * n + 1;
}

struct Shape {
    virtual ~Shape() = default;
    virtual long measure(long n) const = 0;
};

struct Square : Shape {
    NOINLINE long measure(long n) const override { return area(n) + 1; }
};

struct Nested : Shape {
    std::unique_ptr<Shape> inner;
    explicit Nested(std::unique_ptr<Shape> s) : inner(std::move(s)) {}
    NOINLINE long measure(long n) const override { return inner->measure(n + 1) - area(n); }
};

} // namespace geometry

struct Guard {
    ~Guard() { destroyed.fetch_add(1, std::memory_order_relaxed); }
};

template <int Depth> struct Tower {
    NOINLINE static long climb(long n)
    {
        Guard guard;
        return Tower<Depth - 1>::climb(n + Depth) + 1;
    }
};

template <> struct Tower<0> {
    NOINLINE static long climb(long n) { return geometry::area(n) + 2; }
};

template <typename F> NOINLINE static long guarded(F &&f)
{
    try {
        return f();
    } catch (const std::runtime_error &error) {
        caught.fetch_add(1, std::memory_order_relaxed);
        return static_cast<long>(std::string(error.what()).size());
    } catch (long n) {
        caught.fetch_add(1, std::memory_order_relaxed);
        return n + geometry::area(1); // a call from a landing pad
    }
}

NOINLINE static long rethrows(long n)
{
    try {
        return geometry::area(n);
    } catch (...) {
        caught.fetch_add(1, std::memory_order_relaxed);
        throw;
    }
}

NOINLINE static long round(const geometry::Shape &shape, long n)
{
    std::function<long(long)> wrapped = [&shape](long k) { return shape.measure(k) + 1; };
    long sum = guarded([&] { return wrapped(n); });
    sum += guarded([&] { return Tower<6>::climb(n); });
    sum += guarded([&] { return Tower<1>::climb(n) + Tower<3>::climb(n); });
    sum += guarded([&] { return rethrows(n); });
    return sum;
}

int main()
{
    auto make = [] {
        std::unique_ptr<geometry::Shape> shape = std::make_unique<geometry::Square>();
        for (int i = 0; i < 3; i++)
            shape = std::make_unique<geometry::Nested>(std::move(shape));
        return shape;
    };
    auto shape = make();
    std::atomic<long> sum{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; t++)
        threads.emplace_back([&, t] {
            for (long n = t; n < t + 25; n++)
                sum += round(*shape, n);
        });
    for (auto &thread : threads)
        thread.join();
    std::vector<long> keys{5, 3, 9, 1, 4, 8};
    std::sort(keys.begin(), keys.end(), [](long a, long b) {
        return guarded([=] { return rethrows(2 * a); }) < guarded([=] { return rethrows(2 * b); });
    });
    for (long key : keys)
        sum = sum * 3 + key;
    std::printf("calls %ld caught %ld destroyed %ld sum %ld\n", calls.load(), caught.load(),
                destroyed.load(), sum.load());
}
