/* A program for which kernel threads open FIFOs, by io_uring(7). They wait in open(2) until the
 * end, and their operations would fail if they were stopped.
 *
 *     uring COUNT FOLDER
 *
 * Calls `work` in the meantime. Ends on SIGTERM with `ok calls N`, once all have been opened, or
 * `wrong WHY`. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/io_uring.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { ENTRIES = 64 };

static volatile sig_atomic_t stop;
static char names[ENTRIES][512];

__attribute__((noinline, noclone, noipa)) uint64_t work(uint64_t x)
{
    return (x ^ x >> 9) * 5 + 1;
}

static void on_term(int signal)
{
    (void)signal;
    stop = 1;
}

static void *ring(int fd, size_t len, off_t at)
{
    void *start = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, at);
    if (start == MAP_FAILED)
        exit(3);
    return start;
}

int main(int argc, char **argv)
{
    int count = argc > 2 ? atoi(argv[1]) : 0;
    signal(SIGTERM, on_term);
    struct io_uring_params p = {0};
    int fd = (int)syscall(SYS_io_uring_setup, ENTRIES, &p);
    if (fd < 0 || count < 1 || count > ENTRIES) {
        puts("wrong: no io_uring");
        return 3;
    }
    char *in = ring(fd, p.sq_off.array + p.sq_entries * sizeof(unsigned), IORING_OFF_SQ_RING);
    char *out = ring(fd, p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe), IORING_OFF_CQ_RING);
    struct io_uring_sqe *asked = ring(fd, p.sq_entries * sizeof *asked, IORING_OFF_SQES);
    struct io_uring_cqe *done = (struct io_uring_cqe *)(out + p.cq_off.cqes);
    unsigned *in_tail = (unsigned *)(in + p.sq_off.tail), *array = (unsigned *)(in + p.sq_off.array);
    unsigned *head = (unsigned *)(out + p.cq_off.head), *tail = (unsigned *)(out + p.cq_off.tail);
    for (int i = 0; i < count; i++) {
        snprintf(names[i], sizeof names[i], "%s/fifo%d", argv[2], i);
        if (mkfifo(names[i], 0600) != 0)
            return 3;
        asked[i] = (struct io_uring_sqe){.opcode = IORING_OP_OPENAT, .fd = AT_FDCWD, .flags = IOSQE_ASYNC,
                                         .addr = (uintptr_t)names[i], .open_flags = O_RDONLY, .user_data = i};
        array[i] = i;
    }
    __atomic_store_n(in_tail, *in_tail + count, __ATOMIC_RELEASE);
    if (syscall(SYS_io_uring_enter, fd, count, 0, 0, NULL, 0) != count)
        return 3;
    struct timespec pause = {0, 100000000};
    nanosleep(&pause, NULL);
    puts("ready");
    fflush(stdout);
    uint64_t x = 1, calls = 0;
    while (!stop) {
        for (int i = 0; i < 1000; i++, calls++)
            x = work(x);
        struct timespec moment = {0, 1000000};
        nanosleep(&moment, NULL);
    }
    if (__atomic_load_n(tail, __ATOMIC_ACQUIRE) != *head) {
        printf("wrong: %d before there was a writer\n", done[*head].res);
        return 1;
    }
    for (int i = 0; i < count; i++)
        if (open(names[i], O_WRONLY) < 0)
            return 3;
    int opened = 0;
    while (opened < count) {
        while (*head == __atomic_load_n(tail, __ATOMIC_ACQUIRE))
            nanosleep(&pause, NULL);
        if (done[*head & (p.cq_entries - 1)].res < 0) {
            printf("wrong: %d\n", done[*head & (p.cq_entries - 1)].res);
            return 1;
        }
        opened++;
        ++*head;
    }
    printf("ok calls %lu %d\n", (unsigned long)calls, x == 0);
    return 0;
}
