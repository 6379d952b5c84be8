/* Functions that use all of their stack: `stacks WHAT`.
 *
 * red_zone: functions that keep data below the stack pointer, up to each of their exits.
 * alignment: calls with the stack pointer at every remainder of 16 that pushes can produce.
 * tiny: on stacks of 4 KiB above an inaccessible page, down to the last 256 bytes. The program
 *     switches to them by hand and by swapcontext(3), each for the first time on a path.
 * signal: a handler on the smallest alternate stack that has 256 spare bytes. */
#define _GNU_SOURCE
#define FOLLOWED_BY ".skip 16, 0x90\n"
#include "function.h"

#include <alloca.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <ucontext.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))
enum { PAGE = 4096, SPARE = 256 };

static long wrong;

static void expect(const char *name, long got, long expected)
{
    if (got == expected)
        return;
    printf("%s: %ld, expected %ld\n", name, got, expected);
    wrong = 1;
}

/* Leaf functions that fill their red zone from -128 to -8 and read it again right before each exit:
 * a return, a conditional tail call, an unconditional one. */
__asm__(".text\n"
        ".macro fill\n"
        "offset = -128\n"
        ".rept 16\n"
        "mov %rdi, offset(%rsp)\n"
        "addq $(offset & 0x7f), offset(%rsp)\n"
        "offset = offset + 8\n"
        ".endr\n"
        ".endm\n"
        ".macro total from\n"
        "xor %eax, %eax\n"
        "offset = \\from\n"
        ".rept -\\from / 8\n"
        "add offset(%rsp), %rax\n"
        "offset = offset + 8\n"
        ".endr\n"
        ".endm\n"
        "function red_leaf\n"
        "fill\n"
        "total -128\n"
        "ret\n"
        "end red_leaf\n"
        "function red_two_ends\n"
        "fill\n"
        "total -120\n"
        "test $1, %dil\n"
        "jz 1f\n"
        "add -128(%rsp), %rax\n"
        "ret\n"
        "1: sub -128(%rsp), %rax\n"
        "ret\n"
        "end red_two_ends\n"
        "function red_tail\n"
        "fill\n"
        "total -128\n"
        "test $1, %dil\n"
        "jz red_target\n"
        "add -128(%rsp), %rax\n"
        "mov -16(%rsp), %rsi\n"
        "jmp red_target\n"
        "end red_tail\n"
        "function red_target\n"
        "mov %rax, -128(%rsp)\n"
        "mov %rsi, -8(%rsp)\n"
        "mov -128(%rsp), %rax\n"
        "sub -8(%rsp), %rax\n"
        "ret\n"
        "end red_target\n"
        /* Keeps data in the red zone across a loop back to its entry. */
        "function red_loop\n"
        "mov %rsi, -8(%rsp)\n"
        "mov %rdi, -128(%rsp)\n"
        "add %rdi, %rsi\n"
        "dec %rdi\n"
        "jnz red_loop\n"
        "mov -8(%rsp), %rax\n"
        "sub -128(%rsp), %rax\n"
        "ret\n"
        "end red_loop\n"
        /* The distance of the stack pointer from the multiple of 16 below it. */
        "function remainder_here\n"
        "mov %rsp, %rax\n"
        "and $15, %eax\n"
        "ret\n"
        "end remainder_here\n"
        /* Requires a remainder of 8, as the psABI specifies. */
        "function aligned_stores\n"
        "sub $24, %rsp\n"
        ".cfi_adjust_cfa_offset 24\n"
        "movq %rdi, %xmm0\n"
        "movaps %xmm0, (%rsp)\n"
        "movaps (%rsp), %xmm1\n"
        "movq %xmm1, %rax\n"
        "add $24, %rsp\n"
        ".cfi_adjust_cfa_offset -24\n"
        "ret\n"
        "end aligned_stores\n"
        /* Calls rdi with a stack pointer that is rsi bytes lower than here, minus that of the call
         * itself. */
        "function call_lower\n"
        "push %rbp\n"
        ".cfi_adjust_cfa_offset 8\n"
        ".cfi_rel_offset rbp, 0\n"
        "mov %rsp, %rbp\n"
        ".cfi_def_cfa_register rbp\n"
        "sub %rsi, %rsp\n"
        "call *%rdi\n"
        "leave\n"
        ".cfi_def_cfa rsp, 8\n"
        "ret\n"
        "end call_lower\n"
        /* Calls rdi with rsi as its stack pointer, and rdx as its argument. It has no caller on
         * that stack. */
        "function call_on\n"
        ".cfi_undefined rip\n"
        "push %rbp\n"
        "mov %rsp, %rbp\n"
        "mov %rsi, %rsp\n"
        "mov %rdi, %rax\n"
        "mov %rdx, %rdi\n"
        "call *%rax\n"
        "leave\n"
        "ret\n"
        "end call_on\n"
        "function no_stack\n"
        "lea 1(%rdi, %rdi, 2), %rax\n"
        "nopl (%rax)\n"
        "ret\n"
        "end no_stack\n");

long red_leaf(long), red_two_ends(long), red_tail(long, long), red_target(long, long);
long red_loop(long, long), remainder_here(void), aligned_stores(long);
long call_lower(long (*)(void), long), call_on(long (*)(long), void *, long), no_stack(long);

static long total(long x, int from)
{
    long sum = 0;
    for (int offset = from; offset < 0; offset += 8)
        sum += x + (offset & 0x7f);
    return sum;
}

/* A leaf function from the compiler. */
NOINLINE long red_compiled(long x)
{
    volatile long all[12];
    for (int i = 0; i < 12; i++)
        all[i] = x + i;
    long sum = 0;
    for (int i = 0; i < 12; i++)
        sum += all[i] * i;
    return sum;
}

static void red_zone(void)
{
    long n = 300;
    for (long x = 1; x <= n; x++) {
        expect("red_leaf", red_leaf(x), total(x, -128));
        long most = total(x, -120);
        expect("red_two_ends", red_two_ends(x), x & 1 ? most + x : most - x);
        long all = total(x, -128);
        expect("red_tail", red_tail(x, 5), x & 1 ? all + x - (x + 112) : all - 5);
        expect("red_loop", red_loop(3, x), x + 3 + 2 - 1);
        expect("red_compiled", red_compiled(x), x * 66 + 506);
    }
    printf("calls red_leaf %ld\ncalls red_two_ends %ld\ncalls red_tail %ld\n", n, n, n);
    printf("calls red_target %ld\ncalls red_loop %ld\ncalls red_compiled %ld\n", n, n, n);
}

static long aligned_99(void) { return aligned_stores(99); }

static void alignment(void)
{
    long n = 0, m = 0;
    for (int round = 0; round < 20; round++) {
        for (long lower = 0; lower < 64; lower += 8, n++)
            expect("remainder", call_lower(remainder_here, lower), (8 - lower) & 15);
        for (long lower = 0; lower < 64; lower += 16, m++)
            expect("aligned", call_lower(aligned_99, lower), 99);
    }
    printf("calls remainder_here %ld\ncalls aligned_stores %ld\n", n, m);
}

/* A page above an inaccessible one. */
static char *new_page(void)
{
    char *pages = mmap(NULL, 3 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED || mprotect(pages + PAGE, PAGE, PROT_READ | PROT_WRITE))
        exit(3);
    return pages + PAGE;
}

static long no_stack_calls;

/* Keeps up to `most` frames between the switch and the call. */
NOINLINE static long deeper(long x)
{
    char *low = (char *)((uintptr_t)&x & -PAGE);
    char *here = __builtin_frame_address(0);
    long room = here - low - SPARE - 64;
    volatile char *filler = alloca(room > 0 ? room & -16 : 0);
    filler[0] = (char)x;
    no_stack_calls++;
    return no_stack(x) + (filler[0] - (char)x);
}

static ucontext_t main_context, contexts[20];

static void coroutine(int i)
{
    for (int round = 0; round < 3; round++) {
        expect("deeper", deeper(i + round), (i + round) * 3 + 1);
        swapcontext(&contexts[i], &main_context);
    }
}

static void *tiny_on_thread(void *unused)
{
    char *low = new_page();
    expect("first", call_on(no_stack, low + SPARE + 8, 7), 22);
    no_stack_calls++;
    return unused;
}

static void tiny(void)
{
    char *low = new_page();
    for (long x = 0; x < 300; x++, no_stack_calls++)
        expect("call_on", call_on(no_stack, low + SPARE + 8 + x * 8, x), x * 3 + 1);
    for (int i = 0; i < 20; i++) {
        getcontext(&contexts[i]);
        contexts[i].uc_stack.ss_sp = new_page();
        contexts[i].uc_stack.ss_size = PAGE;
        contexts[i].uc_link = &main_context;
        makecontext(&contexts[i], (void (*)(void))coroutine, 1, i);
    }
    for (int round = 0; round < 4; round++)
        for (int i = 0; i < 20; i++)
            swapcontext(&main_context, &contexts[i]);
    for (int i = 0; i < 20; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, tiny_on_thread, NULL);
        pthread_join(thread, NULL);
    }
    printf("calls no_stack %ld\n", no_stack_calls);
}

static char *alternate_low;

static void on_signal(int signal)
{
    char *here = __builtin_frame_address(0);
    long room = here - alternate_low - SPARE - 64;
    volatile char *filler = alloca(room > 0 ? room & -16 : 0);
    filler[0] = 1;
    no_stack_calls++;
    expect("handler", no_stack(signal), signal * 3 + 1);
}

static void *signals(void *unused)
{
    size_t size = getauxval(AT_MINSIGSTKSZ), pages = (size + 1024 + PAGE - 1) / PAGE * PAGE;
    char *low = mmap(NULL, PAGE + pages, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (low == MAP_FAILED || mprotect(low + PAGE, pages, PROT_READ | PROT_WRITE))
        exit(3);
    alternate_low = low + PAGE;
    stack_t stack = {.ss_sp = alternate_low, .ss_size = (size + 1024) & -16ul};
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
    sigaltstack(&stack, NULL);
    sigaction(SIGUSR1, &action, NULL);
    for (int i = 0; i < 200; i++) {
        raise(SIGUSR1);
        if (i % 2) {
            expect("between", no_stack(i), i * 3 + 1);
            no_stack_calls++;
        }
    }
    return unused;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    if (strcmp(what, "red_zone") == 0) {
        red_zone();
    } else if (strcmp(what, "alignment") == 0) {
        alignment();
    } else if (strcmp(what, "tiny") == 0) {
        tiny();
    } else if (strcmp(what, "signal") == 0) {
        for (int i = 0; i < 4; i++) {
            pthread_t thread;
            pthread_create(&thread, NULL, signals, NULL);
            pthread_join(thread, NULL);
        }
        signals(NULL);
        printf("calls no_stack %ld\n", no_stack_calls);
    } else {
        return 2;
    }
    puts(wrong ? "wrong" : "ok");
    return (int)wrong;
}
