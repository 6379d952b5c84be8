/* A program that makes its calls in rounds.
 *
 *     rounds [ROUNDS]
 *
 * Runs ROUNDS rounds at the beginning, then prints `ready`. Each SIGUSR1 leads to one round, then
 * `round`. A round is 1,000 calls of `outer`, each of which calls `inner` twice. SIGTERM ends it:
 * `calls outer N`, `calls inner N`, `ok`. */
#include "work.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static volatile sig_atomic_t wanted;
static long outers, inners;

__attribute__((noipa)) long inner(long n)
{
    inners++;
    return n * 3 + 1;
}

__attribute__((noipa)) long outer(long n)
{
    outers++;
    return inner(n) + inner(n + 1);
}

static void want(int signal)
{
    (void)signal;
    wanted = 1;
}

static long a_round(long sum)
{
    for (int i = 0; i < 1000; i++)
        sum += outer(sum);
    return sum;
}

int main(int count, char **given)
{
    long sum = 0;
    signal(SIGUSR1, want);
    signal(SIGTERM, end);
    for (long i = count > 1 ? atol(given[1]) : 0; i > 0; i--)
        sum = a_round(sum);
    puts("ready");
    fflush(stdout);
    while (!ends) {
        usleep(1000);
        if (!wanted)
            continue;
        wanted = 0;
        sum = a_round(sum);
        puts("round");
        fflush(stdout);
    }
    printf("calls outer %ld\ncalls inner %ld\nok %ld\n", outers, inners, sum);
    return 0;
}
