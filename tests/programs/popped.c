// Code without unwind tables whose callees pop their arguments, as V8's built-in functions do. The
// frames have frame pointers. While a callee runs, and after it has returned, the caller's stack
// pointer differs from the value that the caller's instructions alone suggest.
#include <stdio.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))

static long calls;

NOINLINE void target(void) { calls++; }

__asm__(".text\n"
        ".type under, @function\n"
        "under: push %rbp\n" // its callee inserts arguments above the return address
        "mov %rsp, %rbp\n"
        "push $0x22\n"
        "sub $0x18, %rsp\n"
        "call adds\n"
        "leave\n"
        "ret\n"
        ".size under, . - under\n"
        ".type adds, @function\n"
        "adds: pop %rcx\n"
        "push $1\n"
        "push $2\n"
        "push %rcx\n"
        "jmp fixed\n"
        ".size adds, . - adds\n"
        ".type fixed, @function\n"
        "fixed: push %rbp\n"
        "mov %rsp, %rbp\n"
        "call target\n"
        "pop %rbp\n"
        "ret $16\n"
        ".size fixed, . - fixed\n"
        ".type pushes, @function\n"
        "pushes: push %rbp\n" // pushes the arguments itself, and calls again once they are popped
        "mov %rsp, %rbp\n"
        "push $1\n"
        "push $2\n"
        "call fixed\n"
        "call target\n"
        "push $1\n"
        "push $2\n"
        "push $2\n" // the number of arguments
        "call variable\n"
        "call target\n"
        "mov %rbp, %rsp\n"
        "pop %rbp\n"
        "ret\n"
        ".size pushes, . - pushes\n"
        ".type variable, @function\n"
        "variable: push %rbp\n"
        "mov %rsp, %rbp\n"
        "call target\n"
        "mov 16(%rbp), %rdx\n"
        "pop %rbp\n"
        "pop %rcx\n"
        "lea 8(%rsp,%rdx,8), %rsp\n"
        "push %rcx\n"
        "ret\n"
        ".size variable, . - variable\n");

void under(void), pushes(void);

NOINLINE static int middle(int i) {
    if (i & 1)
        under();
    else
        pushes();
    return i;
}

int main(void) {
    long sum = 0;
    for (int i = 0; i < 100; i++)
        sum += middle(i);
    printf("sum %ld\ncalls target %ld\n", sum, calls);
    return 0;
}
