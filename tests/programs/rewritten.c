/* Calls `work` from code that it has generated. Some of the time the code is being written and
 * therefore not executable, as in just-in-time compilers that keep memory either writable or
 * executable.
 *
 *     rewritten ROUNDS
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))

static long calls;
static char *code;

NOINLINE void work(void)
{
    calls++;
    __asm__("");
}

NOINLINE void helper(long is_writing)
{
    if (is_writing && mprotect(code, 4096, PROT_READ | PROT_WRITE))
        exit(3);
    work();
    if (is_writing && mprotect(code, 4096, PROT_READ | PROT_EXEC))
        exit(3);
}

int main(int argc, char **argv)
{
    /* push %rbp; mov %rsp, %rbp; call *%rsi; pop %rbp; ret */
    static const unsigned char text[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd6, 0x5d, 0xc3};
    long rounds = argc > 1 ? atol(argv[1]) : 0;
    code = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (code == MAP_FAILED)
        return 2;
    memcpy(code, text, sizeof text);
    if (mprotect(code, 4096, PROT_READ | PROT_EXEC))
        return 2;
    void (*generated)(long, void (*)(long)) = (void (*)(long, void (*)(long)))code;
    for (long i = 0; i < 3; i++)
        generated(1, helper);
    for (long i = 0; i < rounds; i++)
        generated(0, helper);
    printf("calls work %ld\n", calls);
    return 0;
}
