/* A server: six workers that wait for jobs. `main` makes one every 4 ms and sleeps in between. Each
 * job needs a lock that a report holds for a long time. A client thread sends a request to the
 * report's thread and waits for its answer. */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER, ledger_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t answer_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t not_empty = PTHREAD_COND_INITIALIZER, answered = PTHREAD_COND_INITIALIZER;
static long jobs, answers;
static volatile double sink;
static volatile int over;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

__attribute__((noinline)) void compute(double seconds) {
    for (double end = now() + seconds; now() < end;)
        for (int i = 0; i < 1000; i++) sink += i;
    __asm__ volatile("");
}

__attribute__((noinline)) void next_job(void) {
    pthread_mutex_lock(&queue_lock);
    while (jobs == 0) pthread_cond_wait(&not_empty, &queue_lock);
    jobs--;
    pthread_mutex_unlock(&queue_lock);
}

__attribute__((noinline)) void charge(void) {
    pthread_mutex_lock(&ledger_lock);
    sink += 1;
    pthread_mutex_unlock(&ledger_lock);
}

__attribute__((noinline)) void handle(void) {
    compute(0.0002);
    charge();
    __asm__ volatile("");
}

static void *worker(void *unused) {
    while (!over) {
        next_job();
        handle();
    }
    return unused;
}

__attribute__((noinline)) void report(void) {
    pthread_mutex_lock(&ledger_lock);
    compute(0.01);
    pthread_mutex_unlock(&ledger_lock);
}

static void *reporter(void *unused) {
    while (!over) {
        report();
        pthread_mutex_lock(&answer_lock);
        answers++;
        pthread_cond_signal(&answered);
        pthread_mutex_unlock(&answer_lock);
        poll(NULL, 0, 10);
    }
    return unused;
}

__attribute__((noinline)) void await_answer(void) {
    pthread_mutex_lock(&answer_lock);
    for (long before = answers; answers == before;) pthread_cond_wait(&answered, &answer_lock);
    pthread_mutex_unlock(&answer_lock);
}

__attribute__((noinline)) void ask(void) {
    await_answer();
    compute(0.0005);
}

static void *client(void *unused) {
    while (!over) {
        compute(0.001);
        ask();
    }
    return unused;
}

int main(int argc, char **argv) {
    double end = now() + (argc > 1 ? atof(argv[1]) : 60);
    pthread_t thread;
    for (int i = 0; i < 6; i++) pthread_create(&thread, NULL, worker, NULL);
    pthread_create(&thread, NULL, reporter, NULL);
    pthread_create(&thread, NULL, client, NULL);
    printf("ready\n");
    fflush(stdout);
    while (now() < end) {
        usleep(4000);
        pthread_mutex_lock(&queue_lock);
        jobs++;
        pthread_cond_signal(&not_empty);
        pthread_mutex_unlock(&queue_lock);
    }
    printf("ok\n");
    fflush(stdout);
    _exit(0);
}
