/* Spends its time in `hot`, called through a library. From 1 s of CPU time on it uses `hotter`,
 * through another library with larger frames at the same address. From 6 s on it uses `hottest`,
 * through the first one again, until 8 s. Prints `ready`, `second`, `third`, `done`, ends on
 * SIGTERM.
 *
 *     swapped ONE OTHER
 */
#include "work.h"

#include <dlfcn.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))
#define WORK(name)              \
    NOINLINE void name(void)    \
    {                           \
        for (long i = 0; i < 100000; i++) \
            work(i);            \
    }

WORK(hot)
WORK(hotter)
WORK(hottest)

typedef void (*Step)(void (*)(void));

NOINLINE void caller(Step step, void (*what)(void))
{
    step(what);
    __asm__("");
}

static long cpu_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int main(int argc, char **argv)
{
    struct sigaction ending = {.sa_handler = end};
    sigaction(SIGTERM, &ending, NULL);
    if (argc < 3)
        return 2;
    const struct {
        const char *says;
        void (*work)(void);
        long until;
    } phases[] = {{"ready", hot, 1000}, {"second", hotter, 6000}, {"third", hottest, 8000}};
    Step before = NULL;
    for (int i = 0; i < 3 && !ends; i++) {
        void *library = dlopen(argv[1 + i % 2], RTLD_NOW);
        Step step = library ? (Step)dlsym(library, "step") : NULL;
        if (!step)
            return 3;
        if (before && before != step)
            puts("moved");
        before = step;
        puts(phases[i].says);
        fflush(stdout);
        while (!ends && cpu_ms() < phases[i].until)
            caller(step, phases[i].work);
        dlclose(library);
    }
    puts("done");
    fflush(stdout);
    while (!ends)
        usleep(1000);
    puts("ok");
    return 0;
}
