/* Calls that leave no frame, and very deep recursion: MODE N. With `twice` a small part of it runs
 * first. With `wait` each part starts on the test's signal. Runs on a stack that exists from the
 * start. Prints its number of measured calls, and a checksum. */
#include "gate.h"

#define NOINLINE __attribute__((noinline, noclone, noipa))
/* Every call has its own frame. */
#define FRAMES NOINLINE __attribute__((optimize("no-optimize-sibling-calls")))

static long half;

static long calls_landed, calls_hop, calls_ping, calls_pong, calls_even, calls_odd, calls_seen,
    calls_bottom, calls_descend, calls_fib;

/* Tail calls, so their callers have no frames any more. */
NOINLINE long landed(long x)
{
    calls_landed++;
    return x * 3 + 1;
}

NOINLINE long hop(long x)
{
    calls_hop++;
    return x % 3 == 0 ? landed(x + 1) : landed(x);
}

NOINLINE long pong(long n);
NOINLINE long ping(long n)
{
    calls_ping++;
    return n == 0 ? hop(n) : pong(n - 1);
}
NOINLINE long pong(long n)
{
    calls_pong++;
    return n == 0 ? landed(n) : ping(n - 1);
}

static long tail(long n)
{
    long sum = 0;
    for (long i = 0; i < n; i++)
        sum += ping(i) ^ hop(i);
    return sum;
}

NOINLINE long seen(long n)
{
    calls_seen++;
    return n ^ 5;
}

FRAMES long odd(long n);
FRAMES long even(long n)
{
    calls_even++;
    long sum = n % 8 == 0 ? seen(n) : 0;
    return n == 0 ? sum : sum + odd(n - 1);
}
FRAMES long odd(long n)
{
    calls_odd++;
    return n == 0 ? seen(n) : 2 * even(n - 1) % 1000003;
}

static long mutual(long n)
{
    long sum = 0;
    for (long i = 0; i < n; i++)
        sum += even(i);
    return sum;
}

NOINLINE long bottom(long n)
{
    calls_bottom++;
    return n + 3;
}

FRAMES static long down(long n)
{
    long sum = n == half ? bottom(n) : 0;
    sum += n == 0 ? bottom(0) + bottom(1) : down(n - 1) + 1;
    return n == half ? sum + bottom(n) : sum;
}

static long deep(long n)
{
    half = n / 2;
    return down(n) + down(n);
}

FRAMES long descend(long n)
{
    calls_descend++;
    return n == 0 ? 1 : descend(n - 1) + 2;
}

static long self(long n) { return descend(n - 1); }

FRAMES long fib(long n)
{
    calls_fib++;
    return n < 2 ? n : fib(n - 1) + fib(n - 2);
}

static const struct mode {
    const char *name;
    long (*run)(long);
    struct {
        const char *name;
        const long *calls;
    } measured[4];
} modes[] = {
    {"tail",
     tail,
     {{"landed", &calls_landed}, {"hop", &calls_hop}, {"ping", &calls_ping}, {"pong", &calls_pong}}},
    {"mutual", mutual, {{"even", &calls_even}, {"odd", &calls_odd}, {"seen", &calls_seen}}},
    {"deep", deep, {{"bottom", &calls_bottom}}},
    {"self", self, {{"descend", &calls_descend}}},
    {"fib", fib, {{"fib", &calls_fib}}},
};

static char **arguments;

static int is_told(const char *word)
{
    char **at = arguments + 3;
    while (*at && strcmp(*at, word) != 0)
        at++;
    return *at != NULL;
}

static void await_if_told(const char *line)
{
    if (is_told("wait")) {
        say(line);
        await_test(SIGUSR1);
    }
}

static void *thread(void *unused)
{
    (void)unused;
    const struct mode *mode = modes;
    while (strcmp(mode->name, arguments[1]) != 0)
        mode++;
    long sum = 0;
    await_if_told("ready");
    if (is_told("twice")) {
        sum = mode->run(2);
        await_if_told("begun");
    }
    sum += mode->run(atol(arguments[2]));
    for (int i = 0; i < 4 && mode->measured[i].name; i++)
        printf("calls %s %ld\n", mode->measured[i].name, *mode->measured[i].calls);
    printf("sum %ld\n", sum);
    fflush(stdout);
    if (is_told("wait"))
        await_test(SIGTERM);
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    arguments = argv;
    await_nothing_yet();
    pthread_attr_t attributes;
    pthread_t id;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 64 << 20);
    if (pthread_create(&id, &attributes, thread, NULL) != 0)
        return 2;
    pthread_join(id, NULL);
    return 0;
}
