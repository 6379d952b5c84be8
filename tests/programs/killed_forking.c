/* Children that are killed while they fork.
 *
 * usage: killed_forking CHILDREN
 *
 * Each that survives long enough has a child, which calls `work` once. Prints `work N`, the number
 * of calls. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))

struct shared {
    long calls;
    int begun;
};
static struct shared *shared;

NOINLINE void work(void)
{
    __atomic_fetch_add(&shared->calls, 1, __ATOMIC_RELAXED);
}

static void child(void)
{
    __atomic_store_n(&shared->begun, 1, __ATOMIC_RELEASE);
    if (fork() == 0) {
        work();
        _exit(0);
    }
    pause();
}

int main(int argc, char **argv)
{
    long children = argc > 1 ? atol(argv[1]) : 0;
    int alive[2];
    char none;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || pipe(alive) != 0)
        return 2;
    for (long i = 0; i < children; i++) {
        __atomic_store_n(&shared->begun, 0, __ATOMIC_RELEASE);
        pid_t pid = fork();
        if (pid == 0)
            child();
        while (!__atomic_load_n(&shared->begun, __ATOMIC_ACQUIRE))
            continue;
        usleep(rand() % 300);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    /* Every process has the other end while it lives. Orphans cannot be waited for in another way.
     */
    close(alive[1]);
    while (read(alive[0], &none, 1) > 0)
        continue;
    printf("work %ld\n", shared->calls);
    return 0;
}
