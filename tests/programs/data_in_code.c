/* Functions with data between their instructions: constants that are jumped over, which a linear
 * decoder merges with the following instructions; tables and constants after the return; a jump
 * into the middle of an instruction. */
#include "body.h"

#define BOTH(name) function name, name##_padded

BOTH(jumped_over);
BOTH(after_return);
BOTH(table_after);
BOTH(before_entry);
BOTH(overlapping);
BOTH(not_code_at_all);

__asm__(/* x + 0x1234: the first two bytes of the data begin a move of eight bytes to a register. */
        ".macro jumped_over_body name\n"
        "  xor %eax, %eax\n"
        "  jmp 1f\n"
        "2: .byte 0x48, 0xb8, 0x34, 0x12, 0, 0\n"
        "1: movzwl 2b+2(%rip), %eax\n"
        "  add %rdi, %rax\n"
        "  ret\n"
        ".endm\n"
        "body jumped_over\n"

        /* The constant is at the function's end, where it cuts an instruction in two. */
        ".macro after_return_body name\n"
        "  movzwl 2f(%rip), %eax\n"
        "  add %rdi, %rax\n"
        "  ret\n"
        "2: .byte 0x34, 0x12, 0x48, 0xb8\n"
        ".endm\n"
        "body after_return\n"

        /* A jump table after the indirect jump, in the text: x, or x + 0x1234 if x is odd. */
        ".macro table_after_body name\n"
        "  mov %rdi, %rax\n"
        "  mov %edi, %ecx\n"
        "  and $1, %ecx\n"
        "  lea 2f(%rip), %rdx\n"
        "  movslq (%rdx,%rcx,4), %rcx\n"
        "  add %rdx, %rcx\n"
        "  jmp *%rcx\n"
        "2: .long 3f - 2b, 4f - 2b\n"
        "3: ret\n"
        "4: add $0x1234, %rax\n"
        "  ret\n"
        ".endm\n"
        "body table_after\n"

        /* Data between the symbol and the first instruction; the caller calls the latter. */
        ".macro before_entry_body name\n"
        "  jmp 1f\n"
        "  .byte 0x48, 0xb8, 0xe8\n"
        "1: lea 0x1234(%rdi), %rax\n"
        "  ret\n"
        ".endm\n"
        "body before_entry\n"

        /* Jumps past the first byte of an instruction, where a different instruction begins. */
        ".macro overlapping_body name\n"
        "  mov %rdi, %rax\n"
        "  test $1, %al\n"
        "  jz 1f + 1\n"
        "1: .byte 0x48\n" /* add $0x1234, %rax with it, add $0x1234, %eax without */
        "  .byte 0x05, 0x34, 0x12, 0, 0\n"
        "  ret\n"
        ".endm\n"
        "body overlapping\n"

        /* Bytes that are not an instruction, and are never reached. */
        ".macro not_code_at_all_body name\n"
        "  lea 0x1234(%rdi), %rax\n"
        "  nopl (%rax)\n"
        "  ret\n"
        "  .byte 0x06, 0x06, 0x06, 0xea, 0x0f, 0x04\n"
        ".endm\n"
        "body not_code_at_all\n");

static long plus(long x, long unused) { return x + 0x1234 + unused; }
static long plus_odd(long x, long unused) { return (x % 2 ? x + 0x1234 : x) + unused; }

/* An ordinary function. */
__attribute__((noinline, noipa)) long steady(long x, long y) { return x * 3 + y; }
static long thrice(long x, long y) { return x * 3 + y; }

static const struct row rows[] = {
    {"steady", steady, thrice, 1},
    ROW(jumped_over, plus),  ROW(after_return, plus), ROW(table_after, plus_odd),
    ROW(before_entry, plus), ROW(overlapping, plus),   ROW(not_code_at_all, plus),
};

int main(void) { return call_all(ROWS(rows), 50); }
