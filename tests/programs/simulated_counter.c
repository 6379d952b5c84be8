/* A program that plays the kernel and the processor of its own counter, for the page of a perf
 * event. The pages of the event and of the thread's other event are in files. The program writes to
 * one mapping of them, and the runtime reads another one. The counter itself is a word of the first
 * file.
 *
 *     simulated_counter EVENT THREAD
 *
 * On SIGUSR1 each function is called CALLS times, `work` also on a thread created later. Then it
 * sends itself SIGUSR2, and ends on SIGTERM with `ok`. */
#include "gate.h"

#include <linux/perf_event.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))

enum { CALLS = 100, EVENT_FD = 40, THREAD_FD = 41, HELD = 2048 };

typedef struct perf_event_mmap_page page;

static page *event, *thread;
/* The counter's value: 48 bits, which start below 0 as in the kernel. */
static volatile uint64_t *held;

static page *mapped(const char *file, int descriptor)
{
    int fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, GATE_PAGE) < 0 || dup2(fd, descriptor) < 0)
        gate_fail(file);
    page *at = mmap(NULL, GATE_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        gate_fail("mmap");
    at->cap_user_time = 1;
    /* The clock does not advance: the pages alone determine the times. */
    at->time_mult = 0;
    at->time_shift = 10;
    return at;
}

static int64_t counted(void)
{
    return (int64_t)(*held << 16) >> 16;
}

static void count(uint64_t events)
{
    *held = (*held + events) & 0xffffffffffff;
}

/* The thread has run for this time, with the event counted or not. */
static void pass(uint64_t ns)
{
    page *pages[] = {event, thread};
    for (int i = 0; i < 2; i++) {
        pages[i]->lock++;
        pages[i]->time_enabled += ns;
        if (pages[i]->index || pages[i] == thread)
            pages[i]->time_running += ns;
        pages[i]->lock++;
    }
}

static void take_out(void)
{
    event->lock++;
    event->offset += counted();
    event->index = 0;
    event->lock++;
}

/* Moves the event to another counter, which has another value. */
static void put_in(uint32_t index)
{
    event->lock++;
    *held = 0xffffffffff00 + index;
    event->index = index;
    event->offset -= counted();
    event->lock++;
}

NOINLINE static void work(void)
{
    count(7);
}

/* Switches the thread out and in. */
NOINLINE static void switched(void)
{
    count(5);
    pass(500);
    take_out();
    put_in(event->offset % 3 + 1);
    count(6);
}

/* Counts the event for a quarter of the time. */
NOINLINE static void shared(void)
{
    count(4);
    pass(60);
    take_out();
    pass(300);
    put_in(2);
    pass(40);
    count(6);
}

/* Does not count the event at all. */
NOINLINE static void uncounted(void)
{
    pass(200);
}

NOINLINE static void inner(void)
{
    count(4);
}

NOINLINE static void outer(void)
{
    inner();
    count(3);
}

/* Replaces other mappings of the files by ordinary memory, because a mapping of a perf event is
 * recognized by its file. */
static void unmap(const char *file)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[4096], access[8];
    unsigned long start, end;
    while (maps && fgets(line, sizeof line, maps))
        if (sscanf(line, "%lx-%lx %4s", &start, &end, access) == 3 && !strcmp(access, "r--s") &&
            strstr(line, file))
            if (mmap((void *)start, end - start, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
                     -1, 0) == MAP_FAILED)
                gate_fail("mmap");
    if (maps)
        fclose(maps);
}

static void *call_work(void *unused)
{
    (void)unused;
    for (int i = 0; i < CALLS; i++)
        work();
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    event = mapped(argv[1], EVENT_FD);
    thread = mapped(argv[2], THREAD_FD);
    held = (uint64_t *)((char *)event + HELD);
    event->cap_user_rdpmc = 1;
    event->pmc_width = 48;
    put_in(1);
    event->offset = 5000;
    await_nothing_yet();
    say("ready");
    await_test(SIGUSR1);
    call_work(NULL);
    for (int i = 0; i < CALLS; i++)
        switched();
    for (int i = 0; i < CALLS; i++)
        shared();
    for (int i = 0; i < CALLS; i++)
        outer();
    take_out();
    for (int i = 0; i < CALLS; i++)
        uncounted();
    put_in(1);
    pthread_t later;
    if (pthread_create(&later, NULL, call_work, NULL) || pthread_join(later, NULL))
        return 3;
    unmap(argv[1]);
    unmap(argv[2]);
    raise(SIGUSR2);
    await_test(SIGTERM);
    say("ok");
    return 0;
}
