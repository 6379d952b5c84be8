/* Repeatedly loads and unloads a library that calls the program: in its constructor, in a call, and
 * in its destructor. With a third argument it is loaded at a different address each time. Prints
 * the number of calls.
 *
 *     dlopen_later LIBRARY ROUNDS [elsewhere]
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static long calls, moved;
static volatile sig_atomic_t told;

/* Called by the library. */
void count_call(void)
{
    calls++;
}

static void tell(int signal)
{
    told = signal;
}

int main(int argc, char **argv)
{
    char *before = NULL;
    if (argc < 3)
        return 2;
    signal(SIGTERM, tell);
    if (argc > 4) {
        puts("ready");
        fflush(stdout);
        while (!told)
            usleep(1000);
    }
    for (long round = 0; round < atol(argv[2]); round++) {
        void *library = dlopen(argv[1], RTLD_NOW);
        long (*later)(long) = library ? dlsym(library, "later") : NULL;
        if (!later) {
            puts(dlerror());
            return 4;
        }
        struct link_map *map = NULL;
        dlinfo(library, RTLD_DI_LINKMAP, &map);
        char *place = (char *)map->l_addr;
        moved += before && before != place;
        before = place;
        for (long i = 0; i < 3; i++)
            if (later(i) != i + 1)
                return 5;
        dlclose(library);
        /* Occupies its previous address. */
        if (argc > 3 && round % 2 == 0)
            mmap(place, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        if (argc > 3 && round % 2 == 1)
            munmap(place, 4096);
    }
    printf("calls later %ld\ncalls moved %ld\n", calls, moved);
    return 0;
}
