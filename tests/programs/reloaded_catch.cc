/* Loads a library, calls `guarded` through it, unloads it, and loads another one from the same file
 * to the same address. `guarded` catches an exception, and returns.
 *
 *     reloaded_catch ONE OTHER PLACE ROUNDS
 */
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>

extern "C" {
#include "copy.h"
}

#define NOINLINE __attribute__((noinline, noclone, noipa))

static long calls, caught;

extern "C" NOINLINE void thrower(long n)
{
    if (n >= 0)
        throw n;
}

extern "C" NOINLINE void guarded(void)
{
    try {
        thrower(calls++);
    } catch (long) {
        caught++;
    }
}

int main(int argc, char **argv)
{
    if (argc < 5)
        return 2;
    for (long round = 0; round < atol(argv[4]); round++) {
        copy(argv[1 + round % 2], argv[3]);
        void *library = dlopen(argv[3], RTLD_NOW);
        auto step = library ? reinterpret_cast<void (*)(void (*)(void))>(dlsym(library, "step"))
                            : nullptr;
        if (!step)
            return 4;
        for (long i = 0; i < 3; i++)
            step(guarded);
        dlclose(library);
    }
    printf("calls guarded %ld\ncalls caught %ld\n", calls, caught);
    return 0;
}
