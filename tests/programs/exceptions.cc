// Exceptions that end calls: `exceptions WHAT`, in three threads that live until all are finished,
// and whose last call ends by one.
//
// through: out of functions without and with destructors to run, past handlers of other types.
// rethrow: caught and rethrown, immediately, through a pointer to it, and as another one.
// dtor: destructors that throw, and destructors that handle exceptions during unwinding.
// noexcept: an exception out of a noexcept function ends the program.
#include "ends.h"

#include <exception>
#include <pthread.h>
#include <stdexcept>
#include <stdlib.h>
#include <sys/resource.h>

static const int THREADS = 3, ROUNDS = 300;

enum What { THROUGH, RETHROW, DTOR, NOEXCEPT };
static What what;

PROBED long cleans(long x)
{
    enter(CLEANS);
    return leave(CLEANS, x * 3 + 1);
}

PROBED long leaves(long x)
{
    enter(LEAVES);
    if (x % 3 == 0)
        throw std::runtime_error("third");
    if (x % 5 == 0)
        throw x;
    return leave(LEAVES, x + 1);
}

struct Guard {
    long *sum, x;
    Guard(long *sum, long x) : sum(sum), x(x) {}
    ~Guard() noexcept(false)
    {
        *sum += cleans(x);
        if (what != DTOR)
            return;
        if (std::uncaught_exceptions() == 0) {
            if (x % 4 == 0) {
                // `middle` was about to return, and now does not.
                __atomic_fetch_sub(&counted_returns[MIDDLE], 1, __ATOMIC_RELAXED);
                throw std::logic_error("from a destructor");
            }
        } else {
            try {
                leaves(x * 15);
            } catch (const std::exception &) {
                *sum += 7;
            }
        }
    }
};

// No destructors to run.
PROBED long inner(long x)
{
    enter(INNER);
    return leave(INNER, leaves(x) + 1);
}

PROBED long middle(long *sum, long x)
{
    enter(MIDDLE);
    Guard guard(sum, x);
    if (what != RETHROW)
        return leave(MIDDLE, inner(x) + inner(x + 1));
    std::exception_ptr kept;
    try {
        return leave(MIDDLE, inner(x));
    } catch (const std::runtime_error &) {
        if (x % 2)
            throw;
        kept = std::current_exception();
    } catch (long thrown) {
        throw std::logic_error("another");
    }
    *sum += cleans(x);
    std::rethrow_exception(kept);
}

PROBED long outer(long *sum, long x)
{
    enter(OUTER);
    try {
        *sum += middle(sum, x);
    } catch (long thrown) {
        *sum += thrown;
    } catch (const char *) {
        *sum += 1000;
    }
    return leave(OUTER, *sum % 1000);
}

PROBED long handler(long *sum, long x) noexcept
{
    enter(HANDLER);
    return leave(HANDLER, middle(sum, x) + 1);
}

static void at_terminate()
{
    // The noexcept frame is still open, and so is the frame whose cleanup ran last.
    puts("terminate\nopen handler 1\nopen middle 1");
    say_counts();
    abort();
}

static pthread_barrier_t all_done;

static void *rounds(void *argument)
{
    long *sum = static_cast<long *>(argument);
    for (long x = 1; x <= ROUNDS; x++) {
        try {
            *sum += outer(sum, x);
        } catch (const std::exception &e) {
            *sum += e.what()[0];
        }
    }
    pthread_barrier_wait(&all_done);
    return nullptr;
}

int main(int argc, char **argv)
{
    const char *const names[] = {"through", "rethrow", "dtor", "noexcept"};
    for (int i = 0; i < 4; i++)
        if (argc > 1 && strcmp(argv[1], names[i]) == 0)
            what = static_cast<What>(i);
    pthread_barrier_init(&all_done, nullptr, THREADS);
    pthread_t threads[THREADS];
    long sums[THREADS] = {};
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], nullptr, rounds, &sums[i]);
    long sum = 0;
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], nullptr);
        sum = sum * 5 + sums[i];
    }
    printf("sum %lx\n", sum);
    if (what == NOEXCEPT) {
        struct rlimit no_core = {0, 0};
        setrlimit(RLIMIT_CORE, &no_core);
        std::set_terminate(at_terminate);
        handler(&sum, 1);
        handler(&sum, 3);
    }
    say_counts();
    return 0;
}
