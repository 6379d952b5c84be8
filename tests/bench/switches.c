/* Pairs of threads that pass a byte back and forth through pipes: four switches per round and pair.
 * Reads a count and a newline from standard input, does as many rounds in each pair, and prints
 * `done`.
 *
 *     switches PAIRS
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct pair {
    int there[2], back[2], begin[2];
};

static int finished[2];

static void hand_over(int from, int to)
{
    char byte;
    if (read(from, &byte, 1) != 1 || write(to, &byte, 1) != 1)
        exit(1);
}

static void *answer(void *argument)
{
    struct pair *pair = argument;
    for (;;)
        hand_over(pair->there[0], pair->back[1]);
}

static void *ask(void *argument)
{
    struct pair *pair = argument;
    char byte = 0;
    for (long count;;) {
        if (read(pair->begin[0], &count, sizeof count) != sizeof count)
            exit(1);
        while (count-- > 0)
            if (write(pair->there[1], &byte, 1) != 1 || read(pair->back[0], &byte, 1) != 1)
                exit(1);
        if (write(finished[1], &byte, 1) != 1)
            exit(1);
    }
}

int main(int argc, char **argv)
{
    int pairs = argc > 1 ? atoi(argv[1]) : 1;
    struct pair *all = calloc(pairs, sizeof *all);
    pthread_t thread;
    if (!all || pipe(finished))
        return 1;
    for (struct pair *pair = all; pair < all + pairs; pair++)
        if (pipe(pair->there) || pipe(pair->back) || pipe(pair->begin) ||
            pthread_create(&thread, NULL, answer, pair) || pthread_create(&thread, NULL, ask, pair))
            return 1;
    for (long count; scanf("%ld", &count) == 1;) {
        char byte;
        for (int i = 0; i < pairs; i++)
            if (write(all[i].begin[1], &count, sizeof count) != sizeof count)
                return 1;
        for (int i = 0; i < pairs; i++)
            if (read(finished[0], &byte, 1) != 1)
                return 1;
        puts("done");
        fflush(stdout);
    }
    return 0;
}
