/* Forks children that immediately load a library and call it. Prints the number of calls in all of
 * them.
 *
 *     forked_loads LIBRARY CHILDREN
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static long *calls;

/* Called by the library. */
void count_call(void)
{
    __atomic_fetch_add(calls, 1, __ATOMIC_RELAXED);
}

static int load(const char *path)
{
    void *library = dlopen(path, RTLD_NOW);
    long (*later)(long) = library ? dlsym(library, "later") : NULL;
    if (!later)
        return 4;
    for (long i = 0; i < 3; i++)
        if (later(i) != i + 1)
            return 5;
    dlclose(library);
    return 0;
}

int main(int argc, char **argv)
{
    int children = argc > 2 ? atoi(argv[2]) : 1;
    calls = mmap(NULL, sizeof *calls, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < children; i++) {
        int status;
        pid_t pid = fork();
        if (pid == 0)
            _exit(load(argv[1]));
        if (waitpid(pid, &status, 0) != pid || status != 0)
            return 6;
    }
    printf("calls later %ld\n", *calls);
    return 0;
}
