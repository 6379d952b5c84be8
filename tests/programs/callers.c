/* Threads that call `work` without a pause.
 *
 *     callers THREADS whole|headless COUNTER_FILE
 *
 * See epoch.h. In a headless process the main thread has ended by pthread_exit before `ready`. Ends
 * on SIGTERM. */
#include "epoch.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>

#define MOST 64

static struct counts counts;
static atomic_int stop, main_waits, begun;
static pthread_t handles[MOST];
static int threads, headless;

static void *caller(void *unused)
{
    (void)unused;
    begun++;
    for (uint64_t x = 1; !atomic_load(&stop); x += 7)
        call_work(&counts, x);
    return NULL;
}

static int leader_is_zombie(void)
{
    char path[64], stat[256] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", getpid());
    FILE *file = fopen(path, "r");
    if (!file)
        return 0;
    size_t n = fread(stat, 1, sizeof stat - 1, file);
    fclose(file);
    stat[n] = 0;
    const char *name_end = strrchr(stat, ')');
    return name_end && name_end[2] == 'Z';
}

/* Does the main thread's work. */
static void *manager(void *signals)
{
    for (int i = 0; i < threads; i++)
        pthread_create(&handles[i], NULL, caller, NULL);
    /* A new thread has all signals blocked. */
    while (begun < threads)
        usleep(1000);
    while (headless ? !leader_is_zombie() : !main_waits)
        usleep(1000);
    puts("ready");
    fflush(stdout);
    int got;
    sigwait(signals, &got);
    atomic_store(&stop, 1);
    for (int i = 0; i < threads; i++)
        pthread_join(handles[i], NULL);
    print_counts(&counts);
    puts("");
    exit(0);
}

int main(int argc, char **argv)
{
    threads = argc > 1 ? atoi(argv[1]) : 0;
    if (threads < 1 || threads > MOST || argc < 4)
        return 2;
    headless = strcmp(argv[2], "headless") == 0;
    epoch_open(argv[3]);
    static sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    pthread_t handle;
    pthread_create(&handle, NULL, manager, &signals);
    if (headless)
        pthread_exit(NULL);
    main_waits = 1;
    for (;;)
        pause();
}
