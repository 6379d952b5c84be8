/* One thread holds the lock of malloc, another one that of the loader, and a third calls `work`.
 *
 *     locks LIBRARY COUNTER_FILE
 *
 * LIBRARY is this source compiled with -DLIBRARY. See epoch.h. Prints `ready` once malloc and the
 * loader are found locked. SIGUSR1 releases both. Prints `free` once all waiting threads have got
 * them. Ends on SIGTERM. */
#ifdef LIBRARY

/* Defined by the program. */
void hold_the_loader(void);

__attribute__((constructor)) static void constructor(void) { hold_the_loader(); }

int in_library(int x) { return x + 1; }

#else
#define _GNU_SOURCE
#include "epoch.h"

#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>

/* Larger than the thread caches, so it comes from the shared heap. */
enum { LARGE = 65536 };

static struct counts counts;
static atomic_int stop, go, in_malloc, in_loader, asked, have;
static char *page;
static const char *library;

static void nap(void)
{
    struct timespec t = {0, 1000000};
    nanosleep(&t, NULL);
}

/* malloc found the end of its heap unwritable: the thread sleeps in the middle of malloc. */
static void on_fault(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    (void)context;
    char *at = info->si_addr;
    if (at < page || at >= page + 4096 || in_malloc)
        wrong("fault", (long)at);
    in_malloc = 1;
    while (!go)
        nap();
    if (mprotect(page, 4096, PROT_READ | PROT_WRITE) != 0)
        wrong("mprotect", errno);
}

static void *in_the_allocator(void *unused)
{
    (void)unused;
    /* The rest of the heap begins in the page after this block. */
    char *last = malloc(LARGE), *end;
    do {
        end = last + malloc_usable_size(last);
        last = malloc(LARGE);
    } while (last != end + 8 || ((uintptr_t)last + LARGE) % 4096 > 2048);
    page = (char *)(((uintptr_t)last + malloc_usable_size(last)) & ~4095ul);
    if (mprotect(page, 4096, PROT_READ) != 0)
        wrong("mprotect", errno);
    char *p = malloc(LARGE);
    memset(p, 7, LARGE);
    have++;
    return NULL;
}

void hold_the_loader(void)
{
    in_loader = 1;
    while (!go)
        nap();
}

static void *in_the_loader(void *unused)
{
    (void)unused;
    void *handle = dlopen(library, RTLD_NOW);
    int (*function)(int) = handle ? (int (*)(int))dlsym(handle, "in_library") : NULL;
    if (!function || function(41) != 42)
        wrong("dlopen", 0);
    have++;
    return NULL;
}

static void *asks_malloc(void *unused)
{
    (void)unused;
    while (!in_malloc)
        nap();
    asked++;
    char *p = malloc(LARGE);
    memset(p, 9, LARGE);
    have++;
    return NULL;
}

static void *asks_loader(void *unused)
{
    (void)unused;
    while (!in_loader)
        nap();
    asked++;
    if (!dlopen("libm.so.6", RTLD_NOW))
        wrong("dlopen", 1);
    have++;
    return NULL;
}

static void *caller(void *unused)
{
    (void)unused;
    for (uint64_t x = 1; !stop; x += 7)
        call_work(&counts, x);
    return NULL;
}

static void say(const char *line)
{
    if (write(1, line, strlen(line)) < 0)
        _exit(3);
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    library = argv[1];
    epoch_open(argv[2]);
    mallopt(M_ARENA_MAX, 1);
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &action, NULL);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    void *(*const work_of[])(void *) = {caller, asks_loader, asks_malloc, in_the_loader,
                                        in_the_allocator};
    pthread_t threads[5];
    /* Creating a thread allocates memory, so the thread that takes malloc's lock comes last, after
     * the one that loads. */
    for (int i = 0; i < 5; i++) {
        pthread_create(&threads[i], NULL, work_of[i], NULL);
        while (i == 3 && !in_loader)
            nap();
    }
    while (asked < 2)
        nap();
    for (int i = 0; i < 200; i++)
        nap();
    if (have != 0)
        wrong("not locked", have);
    say("ready\n");
    int got;
    sigwait(&set, &got);
    go = 1;
    for (int i = 0; i < 20000 && have != 4; i++)
        nap();
    if (have != 4)
        wrong("still locked", have);
    say("free\n");
    while (got != SIGTERM)
        sigwait(&set, &got);
    stop = 1;
    for (int i = 0; i < 5; i++)
        pthread_join(threads[i], NULL);
    print_counts(&counts);
    puts("");
    return 0;
}
#endif
