/* Functions that are so small and so close to each other that there is no room for a jump. */
#ifndef TRAP_FUNCTIONS_H
#define TRAP_FUNCTIONS_H

#include <stdint.h>

/* `before` and `after` keep padding away; each of the others is adjacent to the next one. */
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

#endif
