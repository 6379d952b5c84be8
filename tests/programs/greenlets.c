/* A library whose functions call back into Python, for greenlets.py. Each paths_N calls hold().
 * hold() measures the time of its own calls, in ns, inside; paths_N measures it around the call. */
#define _GNU_SOURCE
#include <time.h>

#define APART __attribute__((noinline, noclone, noipa, visibility("default")))

enum { PATHS = 4 };

long inside[PATHS], outside[PATHS];

typedef long callback(long);

static long now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000 + time.tv_nsec;
}

APART long hold(callback *call, long argument, long path)
{
    long start = now();
    long result = call(argument);
    inside[path] += now() - start;
    return result + 1;
}

#define PATH(number) \
    APART long path_##number(callback *call, long argument) \
    { \
        long start = now(); \
        long result = hold(call, argument, number); \
        outside[number] += now() - start; \
        return result + number; \
    }

PATH(0)
PATH(1)
PATH(2)
PATH(3)
