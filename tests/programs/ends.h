/* For programs whose functions are left in other ways than by returning. Each function counts its
 * calls and its returns. `say_counts` prints `calls NAME N` and `returns NAME N` of those that were
 * called. */
#ifndef ENDS_H
#define ENDS_H

#include <stdio.h>
#include <string.h>

#ifdef __cplusplus
#define PROBED extern "C" __attribute__((noinline, noclone, noipa))
#else
#define PROBED __attribute__((noinline, noclone, noipa))
#endif

enum counted { OUTER, MIDDLE, INNER, LEAVES, CLEANS, HANDLER, SWITCHES, COUNTED };

static const char *const counted_names[COUNTED] = {"outer",   "middle",  "inner",   "leaves",
                                                   "cleans", "handler", "switches"};
static long counted_calls[COUNTED], counted_returns[COUNTED];

static inline void enter(enum counted function)
{
    __atomic_fetch_add(&counted_calls[function], 1, __ATOMIC_RELAXED);
}

/* Returns `value`, and counts the return. */
static inline long leave(enum counted function, long value)
{
    __atomic_fetch_add(&counted_returns[function], 1, __ATOMIC_RELAXED);
    return value;
}

static inline void say_counts(void)
{
    for (int i = 0; i < COUNTED; i++)
        if (counted_calls[i])
            printf("calls %s %ld\nreturns %s %ld\n", counted_names[i], counted_calls[i],
                   counted_names[i], counted_returns[i]);
    fflush(stdout);
}

#endif
