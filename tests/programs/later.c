/* Loads a library at SIGUSR1 and calls `work` through it until SIGTERM.
 *
 *     later LIBRARY
 */
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))

static volatile sig_atomic_t told;

NOINLINE void work(void)
{
    __asm__("");
}

static void tell(int signal)
{
    told = signal;
}

int main(int argc, char **argv)
{
    long sum = 0;
    if (argc < 2)
        return 2;
    signal(SIGUSR1, tell);
    signal(SIGTERM, tell);
    printf("ready\n");
    fflush(stdout);
    while (!told)
        usleep(1000);
    void *library = dlopen(argv[1], RTLD_NOW);
    long (*through)(void (*)(void), long) = library ? dlsym(library, "through") : NULL;
    if (!through)
        return 4;
    for (; told != SIGTERM; usleep(1000))
        sum += through(work, sum & 7);
    printf("ok %ld\n", sum);
    return 0;
}
