// A symbol for an address inside an instruction of another function, as in a damaged symbol table.
// AROUND selects the known facts about it: its unwind entry (1), its size (2), or none (0).
#include <stdio.h>

#ifndef AROUND
#define AROUND 1
#endif

#if AROUND == 1
#define BEGIN ".cfi_startproc\n"
#define END ".cfi_endproc\n"
#else
#define BEGIN
#define END
#endif
#if AROUND == 2
#define SIZE ".size body, . - body\n"
#else
#define SIZE
#endif

__asm__(".text\n"
        ".globl body, inner, lie\n"
        ".type body, @function\n"
        ".type inner, @function\n"
        ".type lie, @function\n"
        "body: " BEGIN
        "mov $0x1111, %eax\n"
        "inner: add $0x55667788, %eax\n" // a second entry
        "lea 0x1234567(%rax), %rax\n"
        ".set lie, . - 5\n"
        "and $0xffffff, %eax\n"
        "ret\n" END SIZE
        ".size inner, . - inner\n"
        ".size lie, 8\n");

extern unsigned body(void), inner(void);

int main(void) {
    unsigned sum = 0;
    for (int i = 0; i < 1000; i++) {
        sum += body();
        __asm__ volatile("mov $7, %%eax\n\tcall inner\n\tadd %%eax, %0" : "+r"(sum) : : "rax", "memory");
    }
    printf("sum %u\n", sum);
    return 0;
}
