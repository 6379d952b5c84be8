/* One function, `probed`, whose calls behave differently on each path: they compute, sleep, wait
 * for a pipe or a mutex, read a disk, or touch new memory.
 *
 * usage: metrics THREADS CALLS FILE [faults]
 *   THREADS  each calls from every caller, CALLS times, starting with a different one
 *   FILE     is read without the page cache; READ_SIZE bytes or more
 *   faults   also touches pages of FILE
 *
 * The program measures each call twice: around the call, and within it around all its work. ipath's
 * value is between the two, whatever happens between their readings. Prints the sums over all
 * threads, `around CALLER.METRIC N` and `within CALLER.METRIC N`, except for values that the kernel
 * does not provide. */
#define _GNU_SOURCE
#include "taskstats.h"

#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))

enum {
    MOST_THREADS = 64,
    /* The duration of behaviors with a chosen time. */
    DURATION_NS = 10 * 1000 * 1000,
    READ_SIZE = 1 << 20,
    READS = 4,
    PAGES = 2048,
    FILE_PAGES = 8,
    PAGE = 4096,
};

enum kind { BUSY, SLEEP, PIPE, MUTEX, DISK, TOUCH, MIXED, KINDS };
static const char *const callers[KINDS] = {
    "path_busy", "path_sleep", "path_pipe", "path_mutex", "path_disk", "path_touch", "path_mixed"};

/* Readings, or differences between them; times in ns. A call is counted when it ends. */
enum metric {
    COUNT, WALL, CPU, BLOCKED, RUN_DELAY, BLOCK_IO, PAGE_FAULTS, MAJOR_FAULTS, CONTEXT_SWITCHES, METRICS
};
static const char *const metrics[METRICS] = {
    "count", "wall", "cpu", "blocked", "run-delay", "block-io", "page-faults", "major-faults", "context-switches"};

struct reading {
    int64_t of[METRICS];
};

/* A thread that makes calls, and the data that it shares with the thread that it waits for. */
struct worker {
    int number;
    int schedstat, taskstats, disk;
    char *buffer;
    int pipe[2];
    pthread_mutex_t mutex;
    sem_t asked, held;
    enum kind help;
    struct reading around[KINDS], within[KINDS];
};

static struct worker workers[MOST_THREADS];
static int taskstats_family;
static long calls;
static int faults;
static const char *file;
static off_t file_size;
static volatile uint64_t sink;

static void fail(const char *what)
{
    perror(what);
    exit(2);
}

static int64_t now(clockid_t clock)
{
    struct timespec at;
    clock_gettime(clock, &at);
    return at.tv_sec * 1000000000L + at.tv_nsec;
}

/* The time this thread was runnable without a processor: the second number in proc(5), schedstat.
 */
static int64_t run_delay(struct worker *worker)
{
    char text[96];
    unsigned long long on_processor, delay;
    long size = pread(worker->schedstat, text, sizeof text - 1, 0);
    if (size <= 0)
        fail("schedstat");
    text[size] = '\0';
    if (sscanf(text, "%llu %llu", &on_processor, &delay) != 2)
        fail("schedstat");
    return (int64_t)delay;
}

static void read_usage(struct reading *reading)
{
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    reading->of[PAGE_FAULTS] = usage.ru_minflt + usage.ru_majflt;
    reading->of[MAJOR_FAULTS] = usage.ru_majflt;
    reading->of[CONTEXT_SWITCHES] = usage.ru_nvcsw + usage.ru_nivcsw;
}

static int64_t block_io(struct worker *worker)
{
    return worker->taskstats < 0 ? 0 : block_io_ns(worker->taskstats, taskstats_family);
}

/* The clocks are read closest to the call, and values that do not grow with time furthest from it.
 */
static struct reading begin(struct worker *worker)
{
    struct reading before = {0};
    before.of[BLOCK_IO] = block_io(worker);
    read_usage(&before);
    before.of[RUN_DELAY] = run_delay(worker);
    before.of[WALL] = now(CLOCK_MONOTONIC);
    before.of[CPU] = now(CLOCK_THREAD_CPUTIME_ID);
    return before;
}

static void end(struct worker *worker, const struct reading *before, struct reading *sums)
{
    struct reading after = {0};
    after.of[CPU] = now(CLOCK_THREAD_CPUTIME_ID);
    after.of[WALL] = now(CLOCK_MONOTONIC);
    after.of[RUN_DELAY] = run_delay(worker);
    read_usage(&after);
    after.of[BLOCK_IO] = block_io(worker);
    for (int i = 0; i < METRICS; i++)
        sums->of[i] += after.of[i] - before->of[i];
    sums->of[COUNT]++;
    sums->of[BLOCKED] = sums->of[WALL] - sums->of[CPU];
}

static void sleep_for(long ns)
{
    struct timespec rest = {0, ns};
    while (nanosleep(&rest, &rest) != 0)
        continue;
}

static void compute_for(int64_t ns)
{
    int64_t until = now(CLOCK_THREAD_CPUTIME_ID) + ns;
    uint64_t x = sink | 1;
    do {
        for (int i = 0; i < 10000; i++)
            x = x * 6364136223846793005u + 1442695040888963407u;
        sink = x;
    } while (now(CLOCK_THREAD_CPUTIME_ID) < until);
}

static void busy(void) { compute_for(DURATION_NS); }

static void sleeps(void) { sleep_for(DURATION_NS); }

static void mixed(void)
{
    compute_for(DURATION_NS / 2);
    sleep_for(DURATION_NS / 2);
}

static void waits_pipe(struct worker *worker)
{
    char byte;
    if (read(worker->pipe[0], &byte, 1) != 1)
        fail("pipe");
}

static void waits_mutex(struct worker *worker)
{
    pthread_mutex_lock(&worker->mutex);
    pthread_mutex_unlock(&worker->mutex);
}

static void reads_disk(struct worker *worker)
{
    static _Atomic int next;
    for (int i = 0; i < READS; i++) {
        off_t offset = (off_t)next++ % (file_size / READ_SIZE) * READ_SIZE;
        if (pread(worker->disk, worker->buffer, READ_SIZE, offset) != READ_SIZE)
            fail(file);
    }
}

/* Touches pages of the file that are not in memory. */
static void touches_file(struct worker *worker)
{
    static _Atomic int next;
    size_t length = (size_t)FILE_PAGES * PAGE;
    off_t offset = (off_t)next++ % (file_size / (off_t)length) * (off_t)length;
    char *memory = mmap(NULL, length, PROT_READ, MAP_PRIVATE, worker->disk, offset);
    if (memory == MAP_FAILED || madvise(memory, length, MADV_RANDOM) != 0)
        fail("mmap");
    for (int i = 0; i < FILE_PAGES; i++)
        sink += (uint64_t)((volatile char *)memory)[(size_t)i * PAGE];
    munmap(memory, length);
}

static void touches(struct worker *worker)
{
    char *memory = mmap(NULL, (size_t)PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || madvise(memory, (size_t)PAGES * PAGE, MADV_NOHUGEPAGE) != 0)
        fail("mmap");
    for (int i = 0; i < PAGES; i++)
        ((volatile char *)memory)[(size_t)i * PAGE] = 1;
    munmap(memory, (size_t)PAGES * PAGE);
    if (faults)
        touches_file(worker);
}

NOINLINE void probed(enum kind kind, struct worker *worker)
{
    struct reading before = begin(worker);
    switch (kind) {
    case BUSY: busy(); break;
    case SLEEP: sleeps(); break;
    case PIPE: waits_pipe(worker); break;
    case MUTEX: waits_mutex(worker); break;
    case DISK: reads_disk(worker); break;
    case TOUCH: touches(worker); break;
    default: mixed(); break;
    }
    end(worker, &before, &worker->within[kind]);
}

/* The readings are inlined here: only the call is between them. */
#define CALLER(name, kind)                                                                         \
    NOINLINE static void name(struct worker *worker)                                               \
    {                                                                                              \
        struct reading before = begin(worker);                                                     \
        probed(kind, worker);                                                                      \
        end(worker, &before, &worker->around[kind]);                                               \
    }
CALLER(path_busy, BUSY)
CALLER(path_sleep, SLEEP)
CALLER(path_pipe, PIPE)
CALLER(path_mutex, MUTEX)
CALLER(path_disk, DISK)
CALLER(path_touch, TOUCH)
CALLER(path_mixed, MIXED)
static void (*const paths[KINDS])(struct worker *) = {
    path_busy, path_sleep, path_pipe, path_mutex, path_disk, path_touch, path_mixed};

static void await(sem_t *semaphore)
{
    while (sem_wait(semaphore) != 0)
        continue;
}

/* Keeps its worker waiting on request. */
static void *helper(void *argument)
{
    struct worker *worker = argument;
    for (;;) {
        await(&worker->asked);
        switch (worker->help) {
        case PIPE:
            sleep_for(DURATION_NS);
            if (write(worker->pipe[1], "x", 1) != 1)
                fail("pipe");
            break;
        case MUTEX:
            pthread_mutex_lock(&worker->mutex);
            sem_post(&worker->held);
            sleep_for(DURATION_NS);
            pthread_mutex_unlock(&worker->mutex);
            break;
        default: return NULL;
        }
    }
}

static void ask(struct worker *worker, enum kind kind)
{
    worker->help = kind;
    sem_post(&worker->asked);
    if (kind == MUTEX)
        await(&worker->held);
}

static void prepare(struct worker *worker)
{
    worker->schedstat = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    worker->taskstats = taskstats_open(&taskstats_family);
    worker->disk = open(file, O_RDONLY | O_DIRECT | O_CLOEXEC);
    if (worker->schedstat < 0 || worker->disk < 0)
        fail(file);
    worker->buffer = mmap(NULL, READ_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (worker->buffer == MAP_FAILED || pipe(worker->pipe) != 0)
        fail("prepare");
    pthread_mutex_init(&worker->mutex, NULL);
    sem_init(&worker->asked, 0, 0);
    sem_init(&worker->held, 0, 0);
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    prepare(worker);
    pthread_t helps;
    if (pthread_create(&helps, NULL, helper, worker) != 0)
        fail("pthread_create");
    /* The very first reading touches memory and binds symbols. */
    struct reading first = begin(worker), unused = {0};
    end(worker, &first, &unused);
    for (long i = 0; i < calls * KINDS; i++) {
        enum kind kind = (enum kind)((i + worker->number) % KINDS);
        if (kind == PIPE || kind == MUTEX)
            ask(worker, kind);
        paths[kind](worker);
    }
    ask(worker, KINDS);
    pthread_join(helps, NULL);
    return NULL;
}

static void say(const char *bracket, enum kind kind, const struct reading *sums, int is_block_io_told)
{
    for (int i = 0; i < METRICS; i++)
        if (i != BLOCK_IO || is_block_io_told)
            printf("%s %s.%s %ld\n", bracket, callers[kind], metrics[i], (long)sums->of[i]);
}

int main(int argc, char **argv)
{
    int threads = argc > 3 ? atoi(argv[1]) : 0;
    calls = argc > 3 ? atol(argv[2]) : 0;
    faults = argc > 4;
    if (threads < 1 || threads > MOST_THREADS || calls < 1)
        return 2;
    file = argv[3];
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    file_size = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
    if (file_size < READ_SIZE)
        return 2;
    /* Drops the whole file from memory at once, because large folios cannot be dropped in part. */
    if (posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) != 0)
        fail(file);
    pthread_t handles[MOST_THREADS];
    for (int i = 0; i < threads; i++) {
        workers[i].number = i;
        if (pthread_create(&handles[i], NULL, work, &workers[i]) != 0)
            fail("pthread_create");
    }
    struct reading around[KINDS] = {0}, within[KINDS] = {0};
    int is_told = 1;
    for (int i = 0; i < threads; i++) {
        pthread_join(handles[i], NULL);
        is_told = is_told && workers[i].taskstats >= 0;
        for (int kind = 0; kind < KINDS; kind++) {
            for (int metric = 0; metric < METRICS; metric++) {
                around[kind].of[metric] += workers[i].around[kind].of[metric];
                within[kind].of[metric] += workers[i].within[kind].of[metric];
            }
        }
    }
    for (enum kind kind = 0; kind < KINDS; kind++) {
        say("around", kind, &around[kind], is_told);
        say("within", kind, &within[kind], is_told);
    }
    return 0;
}
