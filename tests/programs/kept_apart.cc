/* Calls functions with known values, in known phases, and some of them for long. Prints how often.
 *
 *     kept_apart [THREADS]
 *
 * Lines: `FIELD N CALLS` for each field of what handle is given, `number N CALLS`, `text TEXT CALLS`, `result N CALLS` for the calls of work, `phase WORK
 * NAPS` for the calls in each call of iterate, `outside WORK NAPS` for the others, and `long INNER
 * OUTER`: the naps of at least 3 ms as measured inside and around the call.
 */
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#define NOINLINE __attribute__((noinline, noclone))

struct counts {
    long work = 0, naps = 0;
};

static std::mutex guard;
static std::map<long, long> numbers, results;
static std::map<std::string, long> texts;
static std::vector<counts> phases(1);
struct base {
    long id;
};

struct request : base {
    int padding, len;
    union {
        unsigned flags;
        float number;
    };
    struct {
        short tag;
        unsigned char kind;
        unsigned bits : 3;
    } head;
};

static std::map<std::string, std::map<long, long>> fields;
static thread_local size_t phase;
static std::atomic<long> inner, outer;
static const double LIMIT = 0.003;

static double now()
{
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

extern "C" NOINLINE long work(int number, const char *text)
{
    long result = number * 3L - 7;
    std::lock_guard<std::mutex> held(guard);
    numbers[number]++;
    texts[text]++;
    results[result]++;
    phases[phase].work++;
    return result;
}

extern "C" NOINLINE void nap(int ms)
{
    double begun = now();
    {
        std::lock_guard<std::mutex> held(guard);
        phases[phase].naps++;
    }
    if (ms > 0) {
        timespec t = {0, ms * 1000000L};
        nanosleep(&t, nullptr);
    }
    inner += now() - begun >= LIMIT;
}

extern "C" NOINLINE int handle(const request *given)
{
    std::lock_guard<std::mutex> held(guard);
    fields["id"][given->id]++;
    fields["len"][given->len]++;
    fields["flags"][given->flags]++;
    fields["head.tag"][given->head.tag]++;
    fields["head.kind"][given->head.kind]++;
    return given->len;
}

static NOINLINE void handle_all()
{
    request given = {};
    for (int i = 0; i < 300; i++) {
        given.id = i % 4 + (1L << 40);
        given.len = i % 3 - 1;
        given.flags = i % 2 ? 0xffffffffu : 7;
        given.head.tag = (short)-(i % 5);
        given.head.kind = (unsigned char)(200 + i % 2);
        handle(&given);
    }
}

static NOINLINE void nap_for(int ms)
{
    double begun = now();
    nap(ms);
    outer += now() - begun >= LIMIT;
}

struct in_phase {
    size_t before = phase;
    in_phase()
    {
        std::lock_guard<std::mutex> held(guard);
        phases.emplace_back();
        phase = phases.size() - 1;
    }
    ~in_phase() { phase = before; }
};

/* A phase with `calls` calls of work, with others inside it, that an exception may leave. */
extern "C" NOINLINE void iterate(int calls, int depth, bool throws)
{
    in_phase here;
    static const char *const TEXTS[] = {"", "abcdef", "abcdefg", "a longer text with \xff bytes \\",
                                        "a text that is longer than what is read of one, by far"};
    for (int i = 0; i < calls; i++) {
        work(i % 3 - 1, TEXTS[i % 5]);
        if (i == calls / 2 && depth > 0)
            iterate(calls / 3, depth - 1, false);
    }
    nap_for(calls % 2 ? 6 : 0);
    if (throws)
        throw std::runtime_error("left");
    work(1 << 30, "end");
}

static NOINLINE void in_thread(int number)
{
    for (int i = 1; i <= 20; i++) {
        try {
            iterate(20 * number + i, i % 3, i % 4 == 0);
        } catch (const std::runtime_error &) {
        }
    }
}

int main(int argc, char **argv)
{
    int threads = argc > 1 ? atoi(argv[1]) : 0;
    for (int i = 0; i < 50; i++)
        work(-5, "outside");
    if (threads == 0)
        in_thread(0);
    std::vector<std::thread> all;
    for (int i = 0; i < threads; i++)
        all.emplace_back(in_thread, i);
    for (auto &one : all)
        one.join();
    nap_for(0);
    handle_all();
    for (auto &[field, values] : fields)
        for (auto &[value, calls] : values)
            printf("%s %ld %ld\n", field.c_str(), value, calls);
    for (auto &[number, calls] : numbers)
        printf("number %ld %ld\n", number, calls);
    for (auto &[text, calls] : texts)
        printf("text %s\t%ld\n", text.c_str(), calls);
    for (auto &[result, calls] : results)
        printf("result %ld %ld\n", result, calls);
    for (size_t i = 1; i < phases.size(); i++)
        printf("phase %ld %ld\n", phases[i].work, phases[i].naps);
    printf("outside %ld %ld\n", phases[0].work, phases[0].naps);
    printf("long %ld %ld\n", inner.load(), outer.load());
    return 0;
}
