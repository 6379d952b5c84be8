/* Exits by tail calls of every form: conditional jumps, `loop` and `jrcxz`, through a pointer, and
 * by falling through into the next function. Prints the number of exits that cannot be timed up to
 * the return, as `tails NAME N`. */
#include <stdio.h>

#define FUNCTION(name, body)                                                                        \
    long name(long);                                                                                \
    __asm__(".globl " #name "\n.type " #name ", @function\n" #name ":\n.cfi_startproc\n" body            \
            "\n.cfi_endproc\n.size " #name ", . - " #name "\n")
#define APART __asm__(".p2align 4")

__attribute__((noinline, noclone, noipa)) long slow(long x) { return x + 1; }
APART;
FUNCTION(taken, "test $1, %dil\njne slow\nlea (%rdi,%rdi), %rax\nret");
APART;
FUNCTION(twice, "lea 3(%rdi), %rax\nmov %rdi, %rdx\ntest $1, %dil\nje slow\ntest $2, %dil\njne slow\nret");
APART;
FUNCTION(counted, "mov %rdi, %rcx\nand $3, %rcx\ninc %rcx\nmov %rdi, %rax\nnop\nloop 1f\nret\n1: jmp slow");
APART;
FUNCTION(zero, "mov %rdi, %rcx\nand $3, %rcx\nmov %rdi, %rax\nlea 1(%rax), %rax\njrcxz beyond\nret");
__asm__("beyond: jmp slow\n.p2align 4\n.data\npointer: .quad slow\n.text\n");
FUNCTION(by_pointer, "test $1, %dil\njne 2f\nmov %rdi, %rax\nret\n2: jmp *pointer(%rip)");
APART;
FUNCTION(falls, "test $1, %dil\nje 9f\nmov %rdi, %rax\nret\n9: lea 5(%rdi), %rdi\nlea 1(%rdi), %rdi");
FUNCTION(into, "lea 7(%rdi), %rax\nlea 7(%rdi), %rdx\nret");

int main(void)
{
    enum { ROUNDS = 100 };
    long sum = 0, by_pointer_tails = 0, zero_tails = 0;
    for (long i = 0; i < ROUNDS; i++) {
        sum += taken(i) + twice(i) + counted(i) + zero(i) + by_pointer(i) + falls(i) + into(i);
        by_pointer_tails += i & 1;
        /* The target of this jump is not a function. */
        zero_tails += (i & 3) == 0;
    }
    printf("sum %ld\ntails by_pointer %ld\ntails zero %ld\n", sum, by_pointer_tails, zero_tails);
    return 0;
}
