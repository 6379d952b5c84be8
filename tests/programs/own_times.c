/* Calls work() on three paths. The argument selects where the calls run:
 *   contexts  on fibers of makecontext(3). Two threads steal them from each other inside work().
 *   threads   on a thread for each of the six tasks
 *
 * The output has the format of stolen_stacks.c. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define APART __attribute__((noinline, noclone, noipa))

enum { TASKS = 6, ROUNDS = 12, STACK = 65536, PATHS = 3 };

struct task {
    ucontext_t own, back;

    long id, done, last, busy, wake, inside, outside, calls;
};

static struct task tasks[TASKS];
static long left = TASKS;
static int is_threads;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static long now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000 + time.tv_nsec;
}

APART void suspend(struct task *task)
{
    if (is_threads)
        usleep(task->wake > now() ? (task->wake - now()) / 1000 : 1);
    else
        swapcontext(&task->own, &task->back);
    __asm__ volatile("");
}

APART long work(struct task *task, long ms)
{
    long start = now();
    task->calls++;
    task->wake = start + ms * 1000000;
    suspend(task);
    task->inside += now() - start;
    return ms;
}

/* Calls work() from a call site of its own, below a given number of recursive calls. */
#define PATH(number, ms) \
    APART long path_##number(struct task *task, int deep) \
    { \
        if (deep > 0) \
            return path_##number(task, deep - 1) + 1; \
        long start = now(); \
        long result = work(task, ms); \
        task->outside += now() - start; \
        return result + number; \
    }

PATH(0, 1)
PATH(1, 5)
PATH(2, 20)

APART static void rounds(struct task *task)
{
    static long (*const paths[PATHS])(struct task *, int) = {path_0, path_1, path_2};
    long sum = 0;
    for (int round = 0; round < ROUNDS; round++)
        sum += paths[task->id % PATHS](task, task->id);
    task->done = sum + 1;
}

static void body(int id)
{
    rounds(&tasks[id]);
    for (;;)
        suspend(&tasks[id]);
}

static void *run_alone(void *task)
{
    rounds(task);
    return NULL;
}

/* Takes a task that the other thread ran last and that has slept long enough. */
static struct task *take(long thread)
{
    struct task *found = NULL;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < TASKS && found == NULL; i++) {
        struct task *one = &tasks[i];
        if (!one->busy && !one->done && one->last != thread && one->wake <= now())
            found = one;
    }
    if (found != NULL) {
        found->busy = 1;
        found->last = thread;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

static void *steal(void *argument)
{
    for (;;) {
        struct task *task = take((long)argument);
        if (task != NULL)
            swapcontext(&task->back, &task->own);
        pthread_mutex_lock(&lock);
        if (task != NULL) {
            task->busy = 0;
            left -= task->done != 0;
        }
        int is_over = left == 0;
        pthread_mutex_unlock(&lock);
        if (is_over)
            return NULL;
        if (task == NULL)
            usleep(100);
    }
}

int main(int argc, char **argv)
{
    pthread_t threads[TASKS];
    is_threads = argc > 1 && strcmp(argv[1], "threads") == 0;
    for (int i = 0; i < TASKS; i++) {
        tasks[i].id = i;
        tasks[i].last = -1;
        if (is_threads) {
            pthread_create(&threads[i], NULL, run_alone, &tasks[i]);
            continue;
        }
        getcontext(&tasks[i].own);
        tasks[i].own.uc_stack.ss_sp = malloc(STACK);
        tasks[i].own.uc_stack.ss_size = STACK;
        makecontext(&tasks[i].own, (void (*)(void))body, 1, i);
    }
    int count = is_threads ? TASKS : 2;
    for (long i = 0; i < count && !is_threads; i++)
        pthread_create(&threads[i], NULL, steal, (void *)i);
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    long calls = 0;
    for (int path = 0; path < PATHS; path++) {
        long inside = 0, outside = 0;
        for (int i = path; i < TASKS; i += PATHS) {
            inside += tasks[i].inside;
            outside += tasks[i].outside;
            calls += tasks[i].calls;
        }
        printf("inside path_%d %ld\noutside path_%d %ld\n", path, inside, path, outside);
    }
    printf("calls work %ld\nleft work 0\n", calls);
    return 0;
}
