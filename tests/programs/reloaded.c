/* Loads a library, calls `work` through it, unloads it, and loads another one with larger frames
 * from the same file to the same address, as programs do that are developed while they run.
 *
 *     reloaded ONE OTHER PLACE ROUNDS
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "copy.h"

#define NOINLINE __attribute__((noinline, noclone, noipa))

static long calls;

NOINLINE void work(void)
{
    calls++;
    __asm__("");
}

/* Leaves return addresses all over the stack. */
NOINLINE long litter(long depth)
{
    volatile long all[4] = {depth};
    return depth ? litter(depth - 1) + all[0] : all[1];
}

NOINLINE void first(void (*step)(void (*)(void)))
{
    step(work);
    __asm__("");
}

NOINLINE void second(void (*step)(void (*)(void)))
{
    litter(40);
    step(work);
    __asm__("");
}

int main(int argc, char **argv)
{
    void *before = NULL;
    long moved = 0;
    if (argc < 5)
        return 2;
    for (long round = 0; round < atol(argv[4]); round++) {
        copy(argv[1 + round % 2], argv[3]);
        void *library = dlopen(argv[3], RTLD_NOW);
        void (*step)(void (*)(void)) = library ? dlsym(library, "step") : NULL;
        if (!step)
            return 4;
        moved += before && before != (void *)step;
        before = (void *)step;
        for (long i = 0; i < 3; i++) {
            first(step);
            second(step);
        }
        dlclose(library);
    }
    printf("calls work %ld\ncalls moved %ld\n", calls, moved);
    return 0;
}
