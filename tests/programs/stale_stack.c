/* A thread with other memory directly above its stack, which is unmapped, and a caller with a wrong
 * unwind entry: its frame pointer leads into that memory.
 *
 *     stale_stack CALLS
 *
 * Calls `work` through that caller CALLS times before and after the memory is unmapped, and prints
 * the numbers. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { SIZE = 1 << 20 };

__attribute__((noinline, noclone, noipa)) long work(long x)
{
    return x * 3 + 1;
}

/* Its unwind entry claims that its frame is at rbp, which is the argument. */
long misled(uint64_t *rbp, long x);
extern char misled_returns[];
__asm__(".text\n"
        ".type misled, @function\n"
        "misled:\n"
        ".cfi_startproc\n"
        "    push %rbp\n"
        "    .cfi_def_cfa_offset 16\n"
        "    .cfi_offset %rbp, -16\n"
        "    mov %rdi, %rbp\n"
        "    .cfi_def_cfa %rbp, 16\n"
        "    mov %rsi, %rdi\n"
        "    call work\n"
        "misled_returns:\n"
        "    pop %rbp\n"
        "    .cfi_def_cfa %rsp, 8\n"
        "    ret\n"
        ".cfi_endproc\n"
        ".size misled, . - misled\n");

static char *area;
static long calls, result;

static void call_work(void)
{
    /* Three frames of this caller in a row, and then none. */
    for (long i = 0; i < calls; i++)
        result += misled((uint64_t *)(area + SIZE + SIZE / 2), i);
}

static void *thread(void *argument)
{
    uint64_t *frame = (uint64_t *)(area + SIZE + SIZE / 2);
    for (int i = 0; i < 3; i++, frame += 8) {
        frame[0] = (uint64_t)(frame + 8);
        frame[1] = (uint64_t)misled_returns;
    }
    call_work();
    munmap(area + SIZE, SIZE);
    call_work();
    return argument;
}

int main(int argc, char **argv)
{
    calls = argc > 1 ? atol(argv[1]) : 1000;
    area = mmap(NULL, 2 * SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_attr_t attributes;
    pthread_t id;
    pthread_attr_init(&attributes);
    if (area == MAP_FAILED || pthread_attr_setstack(&attributes, area, SIZE) != 0 ||
        pthread_create(&id, &attributes, thread, NULL) != 0)
        return 3;
    pthread_join(id, NULL);
    printf("calls work %ld\n", 2 * calls);
    return result == 0;
}
