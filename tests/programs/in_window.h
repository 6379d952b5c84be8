/* Functions in the middle of which a thread can wait: see gate.h. */
#ifndef IN_WINDOW_H
#define IN_WINDOW_H

#define END_WITH "ret\n"
#include "function.h"
#include "gate.h"

/* long f(long x, const char *from, long unused, long bytes): 3 * x + the last byte read + 7. */
long in_entry(long x, const char *from, long unused, long bytes);
long in_exit(long x, const char *from, long unused, long bytes);
long at_entry(long x, const char *from, long unused, long bytes);

__asm__(".text\n"
        "function in_entry\n"
        "  mov %edi, %eax\n"
        "  rep lodsb\n" /* at +2 */
        "  movzbl %al, %eax\n"
        "  lea 7(%rax,%rdi,2), %rax\n"
        "  lea (%rax,%rdi), %rax\n"
        "end in_entry\n"

        "function in_exit\n"
        "  lea (%rdi,%rdi,2), %rdx\n"
        "  lea -1(%rsi), %rsi\n"
        "  lea 1(%rsi), %rsi\n"
        "  lea 7(%rdx), %rdx\n"
        "  xor %eax, %eax\n"
        "  jmp 1f\n"
        "1: add %edx, %eax\n" /* five bytes before the end; al is overwritten below */
        "  rep lodsb\n"
        "end in_exit\n"

        "function at_entry\n"
        "  rep lodsb\n"
        "  movzbl %al, %eax\n"
        "  lea 7(%rax,%rdi,2), %rax\n"
        "  lea (%rax,%rdi), %rax\n"
        "end at_entry\n");

struct way {
    const char *name;
    long (*function)(long, const char *, long, long);
    struct gate gate;
    long x;
    long wrong;
    long calls;
};

static struct way ways[] = {
    {.name = "in_entry", .function = in_entry},
    {.name = "in_exit", .function = in_exit},
    {.name = "at_entry", .function = at_entry},
};
#define WAYS (int)(sizeof ways / sizeof *ways)

static __attribute__((noinline, noclone)) void call(struct way *way)
{
    way->x++;
    long got = way->function(way->x, way->gate.page - GATE_BEFORE, 0, 2 * GATE_BEFORE);
    /* in_exit leaves its result in the bits above the byte that it reads. */
    long wanted = way->function == in_exit ? (3 * way->x + 7) & ~255L : 3 * way->x + 7;
    way->wrong += got != wanted;
    way->calls++;
}

/* Prints the numbers of calls. */
static void say_calls(void)
{
    for (int i = 0; i < WAYS; i++)
        printf("calls %s %ld\n", ways[i].name, ways[i].calls);
}

#endif
