/* Functions so small, and so close to each other, that no jump has room in them.
 *
 *     trap CALLS [SECONDS]
 *
 * Three threads call them CALLS times each, or with SECONDS as often as they can until SIGTERM or
 * that time. Prints `ok calls N`: how often each of the functions was called. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* `before` and `after` keep paddings away; each of the others is the next one's neighbour. */
__asm__(".text\n.p2align 4\n"
        ".type before, @function\nbefore:\n.cfi_startproc\n xor %eax, %eax\n ret\n.cfi_endproc\n"
        ".size before, .-before\n"
        ".globl tiny_one\n.type tiny_one, @function\ntiny_one:\n.cfi_startproc\n ret\n"
        ".cfi_endproc\n.size tiny_one, .-tiny_one\n"
        ".globl tiny_two\n.type tiny_two, @function\ntiny_two:\n.cfi_startproc\n repz ret\n"
        ".cfi_endproc\n.size tiny_two, .-tiny_two\n"
        ".globl tiny_four\n.type tiny_four, @function\ntiny_four:\n.cfi_startproc\n"
        " mov %rdi, %rax\n ret\n.cfi_endproc\n.size tiny_four, .-tiny_four\n"
        ".type after, @function\nafter:\n.cfi_startproc\n ret\n.cfi_endproc\n"
        ".size after, .-after\n");

void tiny_one(void);
void tiny_two(void);
uint64_t tiny_four(uint64_t x);

static atomic_int stop, begun;
static long most;

static void on_term(int signal)
{
    (void)signal;
    atomic_store(&stop, 1);
}

static void *thread(void *unused)
{
    (void)unused;
    atomic_fetch_add(&begun, 1);
    long calls = 0;
    while (!atomic_load_explicit(&stop, memory_order_relaxed) && (most == 0 || calls < most)) {
        tiny_one();
        tiny_two();
        if (tiny_four((uint64_t)calls * 7) != (uint64_t)calls * 7)
            return (void *)-1L;
        calls++;
    }
    return (void *)calls;
}

int main(int argc, char **argv)
{
    double seconds = argc > 2 ? atof(argv[2]) : 0;
    most = seconds > 0 ? 0 : argc > 1 ? atol(argv[1]) : 1000;
    signal(SIGTERM, on_term);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, thread, NULL);
    if (seconds > 0) {
        struct timespec moment = {0, 100000};
        /* A thread is made with all signals blocked. */
        while (atomic_load(&begun) < 3)
            nanosleep(&moment, NULL);
        puts("ready");
        fflush(stdout);
        struct timespec pause = {0, 5000000};
        for (double waited = 0; waited < seconds && !atomic_load(&stop); waited += 0.005)
            nanosleep(&pause, NULL);
        atomic_store(&stop, 1);
    }
    long calls = 0;
    for (int i = 0; i < 3; i++) {
        void *result;
        pthread_join(threads[i], &result);
        if ((long)result < 0)
            return 1;
        calls += (long)result;
    }
    printf("ok calls %ld\n", calls);
    return 0;
}
