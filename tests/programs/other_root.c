/* A function that a library calls: the library's file reveals the caller's name.
 *
 *     other_root LIBRARY [OTHER]
 *
 * Prints `ready`, waits for SIGUSR1, and lets the library call `leaf` 100 times. If OTHER is given,
 * it replaces LIBRARY by that file. Prints `ok SUM`; ends on SIGTERM, or at once with OTHER. */
#include "gate.h"
#include <dlfcn.h>

typedef unsigned long leaf_function(unsigned long);

__attribute__((noinline)) unsigned long leaf(unsigned long x)
{
    for (int i = 0; i < 3; i++)
        x = x * 31 + 7;
    return x;
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    await_nothing_yet();
    void *library = dlopen(argv[1], RTLD_NOW);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
    typedef unsigned long caller(leaf_function *, unsigned long);
    caller *call = (caller *)(uintptr_t)dlsym(library, "entrance");
    say("ready");
    if (argc == 2)
        await_test(SIGUSR1);
    unsigned long sum = 0;
    for (unsigned long x = 0; x < 100; x++)
        sum = sum * 31 + call(leaf, x);
    if (argc > 2 && rename(argv[2], argv[1]) != 0)
        gate_fail("rename");
    printf("ok %lu\n", sum);
    fflush(stdout);
    if (argc == 2)
        await_test(SIGTERM);
    return 0;
}
