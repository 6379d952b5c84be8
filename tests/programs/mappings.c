/* Creates mappings until only LEAVE more are allowed (vm.max_map_count): at once, or with `later`
 * on the test's signal. Calls `work` all the time, on its first thread and on threads that start
 * and end repeatedly. Ends on SIGTERM with `ok calls N`. */
#include "gate.h"

#define NOINLINE __attribute__((noinline, noclone, noipa))

static volatile sig_atomic_t fills, ends;
static long calls;

NOINLINE long work(long x)
{
    __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
    return x + 1;
}

static void *thread(void *unused)
{
    (void)unused;
    for (int i = 0; i < 10; i++)
        work(i);
    return NULL;
}

static long lines_of(const char *path)
{
    FILE *file = fopen(path, "r");
    long lines = 0;
    for (int c; (c = getc(file)) != EOF;)
        lines += c == '\n';
    fclose(file);
    return lines;
}

static void fill(long leave)
{
    long most = 0;
    FILE *file = fopen("/proc/sys/vm/max_map_count", "r");
    if (fscanf(file, "%ld", &most) != 1)
        exit(2);
    fclose(file);
    long pages = most - leave - lines_of("/proc/self/maps") - 1;
    char *start = mmap(NULL, (size_t)pages * 4096, PROT_READ,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    for (long i = 1; i < pages; i += 2)
        if (mprotect(start + i * 4096, 4096, PROT_READ | PROT_WRITE) < 0)
            break;
    say("full");
}

static void on(int signal)
{
    *(signal == SIGUSR1 ? &fills : &ends) = 1;
}

int main(int argc, char **argv)
{
    signal(SIGUSR1, on);
    signal(SIGTERM, on);
    /* Maps a thread's stack, which is reused from then on. */
    thread(NULL);
    pthread_t id;
    if (pthread_create(&id, NULL, thread, NULL) == 0)
        pthread_join(id, NULL);
    if (argc < 3)
        fill(atol(argv[1]));
    say("ready");
    while (!ends) {
        if (fills) {
            fills = 0;
            fill(atol(argv[1]));
        }
        work(1);
        if (pthread_create(&id, NULL, thread, NULL) == 0)
            pthread_join(id, NULL);
        usleep(1000);
    }
    printf("ok calls %ld\n", calls);
    return 0;
}
