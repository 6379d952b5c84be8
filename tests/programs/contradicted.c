// Unwind rows that are wrong at calls of a noreturn function, as made by clang when it merges these
// calls. In `several`, one call is reached with two stack heights. In `single`, it is reached with
// one, and its row has another.
#include <setjmp.h>
#include <stdio.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))

static jmp_buf back;
static long calls;

NOINLINE void stop(long x) {
    calls++;
    __asm__ volatile("" : : "r"(x));
    longjmp(back, 1);
}

#define PUSH_FOUR \
    "push $1\n" \
    ".cfi_def_cfa_offset 24\n" \
    "push $2\n" \
    ".cfi_def_cfa_offset 32\n" \
    "push $3\n" \
    ".cfi_def_cfa_offset 40\n" \
    "push $4\n" \
    ".cfi_def_cfa_offset 48\n"

__asm__(".text\n"
        ".type several, @function\n"
        "several: .cfi_startproc\n"
        "push %rax\n"
        ".cfi_def_cfa_offset 16\n"
        "test $1, %dil\n"
        "jne 1f\n"
        "jmp 2f\n"
        "1:"
        PUSH_FOUR
        "2: call stop\n"
        ".cfi_endproc\n"
        ".size several, . - several\n"
        ".type single, @function\n"
        "single: .cfi_startproc\n"
        "push %rax\n"
        ".cfi_def_cfa_offset 16\n"
        "cmp $1000, %edi\n"
        "jb 3f\n"
        PUSH_FOUR
        "call stop\n"
        "ud2\n"
        "3: call stop\n"
        ".cfi_endproc\n"
        ".size single, . - single\n");

long several(int i), single(int i);

NOINLINE static long inner(long (*function)(int), int i) { return function(i) + 1; }
NOINLINE static long outer(long (*function)(int), int i) { return inner(function, i) + 1; }

int main(void) {
    for (volatile int i = 0; i < 400; i++) {
        if (!setjmp(back))
            outer(i % 4 < 2 ? several : single, i);
    }
    printf("calls stop %ld\n", calls);
    return 0;
}
