// A program with a function that has the name of the one by which Go's runtime moves stacks, and
// with nothing else of Go.
//
// usage: copystack [wait]
//
// With `wait` it continues until it is killed.
#include <stdio.h>
#include <unistd.h>

#define PROBED __attribute__((noinline, noclone))

static int volatile sink;

PROBED void copystack(int x) __asm__("runtime.copystack");

PROBED void copystack(int x)
{
    sink += x;
}

PROBED void more(int x)
{
    copystack(x);
    sink += 2;
}

PROBED void work(int x)
{
    more(x);
    sink += 3;
}

int main(int argc, char **argv)
{
    (void)argv;
    for (int i = 0; i < 500; i++)
        work(i);
    puts(argc > 1 ? "ready" : "calls work 500");
    fflush(stdout);
    while (argc > 1)
        pause();
    return sink == 0;
}
