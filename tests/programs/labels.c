/* Interpreters with more labels than a hook can compare.
 *
 * usage: labels ROUNDS: prints how often each label was reached, of both functions */
#include <stdio.h>
#include <stdlib.h>

#define ALL(X) \
    X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15) X(16) \
    X(17) X(18) X(19) X(20) X(21) X(22) X(23) X(24) X(25) X(26) X(27) X(28) X(29) X(30) X(31) \
    X(32) X(33) X(34) X(35) X(36) X(37) X(38) X(39)
#define LABEL(N) &&op##N,
enum { LABELS = 40 };

static long reached[2][LABELS + 1];

/* Each operation ends with a jump of its own. */
__attribute__((noipa)) unsigned threaded(const unsigned char *at, unsigned x)
{
    static void *const labels[] = {ALL(LABEL) &&stop};
    goto *labels[*at++];
#define THREADED(N) op##N: reached[0][N]++; x = x * (2 * N + 3) + N; goto *labels[*at++];
    ALL(THREADED)
stop:
    reached[0][LABELS]++;
    return x;
}

/* All operations go back to one jump. */
__attribute__((noipa)) unsigned central(const unsigned char *at, unsigned x)
{
    static void *const labels[] = {ALL(LABEL) &&stop};
again:
    goto *labels[*at++];
#define CENTRAL(N) op##N: reached[1][N]++; x = x * (2 * N + 5) + N; goto again;
    ALL(CENTRAL)
stop:
    reached[1][LABELS]++;
    return x;
}

enum { OPERATIONS = 1000 };

int main(int argc, char **argv)
{
    static unsigned char code[OPERATIONS + 1];
    long rounds = argc > 1 ? atol(argv[1]) : 1;
    unsigned x = 1;
    for (int i = 0; i < OPERATIONS; i++) {
        x = x * 1664525 + 1013904223;
        /* Low numbers are more frequent. */
        unsigned of = (x >> 16) % LABELS;
        code[i] = x & 256 ? of : of / 4;
    }
    code[OPERATIONS] = LABELS;
    for (long round = 0; round < rounds; round++)
        x = threaded(code, x) ^ central(code + round % OPERATIONS, x);
    for (int of = 0; of < 2; of++)
        for (int label = 0; label <= LABELS; label++)
            printf("%ld%c", reached[of][label], label == LABELS ? '\n' : ' ');
    return 0;
}
