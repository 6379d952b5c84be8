/* A library, loaded a second time into a separate namespace.
 *
 *     same_file LIBRARY
 *
 * Prints `ready`, waits for SIGUSR1, calls `small_work` of both, prints `first N`, `second N` and
 * `ok SUM`; ends on SIGTERM. Standard error has the addresses of the two functions. */
#include "gate.h"
#include <dlfcn.h>

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    await_nothing_yet();
    void *first = dlopen(argv[1], RTLD_NOW);
    void *second = dlmopen(LM_ID_NEWLM, argv[1], RTLD_NOW);
    if (first == NULL || second == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
    typedef unsigned long work(unsigned long);
    typedef unsigned long calls(void);
    work *work1 = (work *)(uintptr_t)dlsym(first, "small_work");
    work *work2 = (work *)(uintptr_t)dlsym(second, "small_work");
    calls *calls1 = (calls *)(uintptr_t)dlsym(first, "small_calls");
    calls *calls2 = (calls *)(uintptr_t)dlsym(second, "small_calls");
    if (work1 == work2)
        return 2;
    fprintf(stderr, "%p %p\n", (void *)(uintptr_t)work1, (void *)(uintptr_t)work2);
    say("ready");
    await_test(SIGUSR1);
    unsigned long sum = 0;
    for (unsigned long x = 0; x < 3000; x++) {
        sum = sum * 31 + work1(x);
        for (int i = 0; i < 3; i++)
            sum = sum * 31 + work2(x + (unsigned long)i);
    }
    printf("first %lu\nsecond %lu\nok %lu\n", calls1(), calls2(), sum);
    fflush(stdout);
    await_test(SIGTERM);
    return 0;
}
