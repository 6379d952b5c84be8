/* Call paths through the large library of huge.S. With an argument it continues until SIGTERM.
 * Prints `calls huge_work N`. */
#include <signal.h>
#include <stdio.h>

typedef long (*unary)(long);

long huge_0(unary, long);
long huge_1(unary, long);
long huge_149999(unary, long);
long huge_299999(unary, long);
long huge_work(long);

static long calls;
static volatile sig_atomic_t stop;

static void on_term(int signal)
{
    (void)signal;
    stop = 1;
}

static long direct(long n)
{
    calls++;
    return huge_work(n) + 1;
}

static long first(long n) { return huge_0(direct, n) + 1; }
static long middle(long n) { return huge_149999(first, n) + huge_149999(direct, n); }
static long last(long n) { return huge_299999(middle, n) ^ huge_299999(direct, n); }

static long down(long n) { return n == 0 ? last(n) : huge_1(down, n - 1) + last(n); }

int main(int argc, char **argv)
{
    (void)argv;
    signal(SIGTERM, on_term);
    puts("ready");
    fflush(stdout);
    long sum = 0;
    for (long i = 0; argc > 1 ? !stop : i < 40; i++)
        sum += down(i % 12);
    printf("calls huge_work %ld\n", calls);
    if (argc == 1)
        printf("sum %ld\n", sum);
    return 0;
}
