/* Threads created by clone(2) in a program whose C library does not know them: their ids are not
 * where the library keeps those of its own threads. They run one after the other and call `work`,
 * which waits.
 *
 *     raw_threads THREADS CALLS shared|own
 *
 * With `shared` all have the same thread control block, one after the other. Prints `switches N`:
 * the context switches in the calls by getrusage(2), read just before and after each call. */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { STACK = 1 << 16, BLOCK = 1 << 13 };

static long calls, switches;

__attribute__((noipa)) void work(void)
{
    struct timespec time = {0, 1000};
    syscall(SYS_nanosleep, &time, 0);
}

static long now(void)
{
    struct rusage usage;
    syscall(SYS_getrusage, RUSAGE_THREAD, &usage);
    return usage.ru_nvcsw + usage.ru_nivcsw;
}

static int thread(void *unused)
{
    (void)unused;
    for (long i = 0; i < calls; i++) {
        long before = now();
        work();
        switches += now() - before;
    }
    syscall(SYS_exit, 0);
    return 0;
}

static char *map(size_t size)
{
    char *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        exit(1);
    return at;
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    long threads = atol(argv[1]);
    calls = atol(argv[2]);
    int is_shared = strcmp(argv[3], "shared") == 0;
    char *stack = map(STACK), *block = map(BLOCK);
    static int alive;
    for (long i = 0; i < threads; i++) {
        if (!is_shared)
            block = map(BLOCK);
        /* The control block is in the middle; its first and third words are its address (glibc's
         * tcbhead_t). */
        char *control = block + BLOCK / 2;
        memset(block, 0, BLOCK);
        ((void **)control)[0] = control;
        ((void **)control)[2] = control;
        alive = 1;
        int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_SETTLS;
        if (clone(thread, stack + STACK, flags | CLONE_CHILD_CLEARTID, NULL, NULL, control, &alive) < 0)
            return 1;
        while (__atomic_load_n(&alive, __ATOMIC_SEQ_CST) != 0)
            syscall(SYS_futex, &alive, FUTEX_WAIT, 1, NULL, NULL, 0);
    }
    printf("switches %ld\n", switches);
    return 0;
}
