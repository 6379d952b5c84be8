/* A program whose heap the kernel maps right after it (if run without address randomization), and a
 * function so small that a jump from it would lead there. Prints `calls small N` and `ok`, or that
 * it got no heap. */
#include <stdio.h>
#include <unistd.h>

__asm__(".text\n"
        ".globl small\n.type small, @function\nsmall:\n.cfi_startproc\n"
        "  mov %rdi, %rax\n  ret\n.cfi_endproc\n.size small, . - small\n"
        ".type after, @function\nafter:\n.cfi_startproc\n"
        "  add %edi, %eax\n" /* 01 f8: 16 MiB or more above */
        "  nopl 64(%rax)\n  ret\n.cfi_endproc\n.size after, . - after\n"
        ".globl large\n.type large, @function\nlarge:\n.cfi_startproc\n"
        "  lea 1(%rdi), %rax\n  nopl 64(%rax)\n  ret\n.cfi_endproc\n.size large, . - large\n");

long small(long x), large(long x);

int main(void)
{
    for (long size = 0; size < 64l << 20; size += 1 << 20)
        if (sbrk(1 << 20) == (void *)-1) {
            printf("no heap beyond %ld bytes\n", size);
            return 1;
        }
    for (long x = 0; x < 100; x++)
        if (small(x) != x || large(x) != x + 1)
            return 1;
    puts("calls small 100\ncalls large 100\nok");
    return 0;
}
