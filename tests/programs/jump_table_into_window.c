/* Functions whose first or last bytes are reached through jump tables: of offsets, of addresses,
 * and of addresses that are passed in a way that no analysis of the function can follow. */
#include "body.h"

#define BOTH(name) function name, name##_padded

BOTH(offsets_to_start);
BOTH(addresses_to_start);
BOTH(unknown_to_start);
BOTH(offsets_to_end);
BOTH(addresses_to_end);

__asm__(/* 1 + ... + x; the jumps to the loop's head, at +2, and to the exit are through a table. */
        ".macro loop_head\n"
        "  xor %eax, %eax\n"
        "1: add %rdi, %rax\n"
        "  dec %rdi\n"
        "  xor %ecx, %ecx\n"
        "  test %rdi, %rdi\n"
        "  setz %cl\n"
        ".endm\n"

        ".macro offsets_to_start_body name\n"
        "  loop_head\n"
        "  lea 2f(%rip), %rdx\n"
        "  movslq (%rdx,%rcx,4), %rcx\n"
        "  add %rdx, %rcx\n"
        "  jmp *%rcx\n"
        "3: ret\n"
        ".pushsection .rodata\n"
        ".balign 4\n"
        "2: .long 1b - 2b, 3b - 2b\n"
        ".popsection\n"
        ".endm\n"
        "body offsets_to_start\n"

        ".macro addresses_to_start_body name\n"
        "  loop_head\n"
        "  lea 2f(%rip), %rdx\n"
        "  jmp *(%rdx,%rcx,8)\n"
        "3: ret\n"
        ".pushsection .data.rel.ro, \"aw\"\n"
        ".balign 8\n"
        "2: .quad 1b, 3b\n"
        ".popsection\n"
        ".endm\n"
        "body addresses_to_start\n"

        ".macro unknown_to_start_body name\n"
        "  loop_head\n"
        "  mov table_of_\\name(%rip), %rdx\n"
        "  jmp *(%rdx,%rcx,8)\n"
        "3: ret\n"
        ".pushsection .data.rel.ro, \"aw\"\n"
        ".balign 8\n"
        "2: .quad 1b, 3b\n"
        ".globl table_of_\\name\n"
        "table_of_\\name: .quad 2b\n"
        ".popsection\n"
        ".endm\n"
        "body unknown_to_start\n"

        /* x, or 3 * x if x is a multiple of four, or 2 * x + 1 if x is odd. */
        ".macro way_out\n"
        "  mov %rdi, %rax\n"
        "  mov %edi, %ecx\n"
        "  and $3, %ecx\n"
        ".endm\n"
        ".macro ways_out\n"
        "3: lea (%rdi,%rdi,2), %rax\n"
        "  ret\n"
        "4: lea (%rdi,%rdi), %rax\n"
        "  inc %rax\n"
        "5: ret\n" /* the instruction itself is a target */
        ".endm\n"

        ".macro offsets_to_end_body name\n"
        "  way_out\n"
        "  lea 2f(%rip), %rdx\n"
        "  movslq (%rdx,%rcx,4), %rcx\n"
        "  add %rdx, %rcx\n"
        "  jmp *%rcx\n"
        "  ways_out\n"
        ".pushsection .rodata\n"
        ".balign 4\n"
        "2: .long 3b - 2b, 4b - 2b, 5b - 2b, 4b - 2b\n"
        ".popsection\n"
        ".endm\n"
        "body offsets_to_end\n"

        ".macro addresses_to_end_body name\n"
        "  way_out\n"
        "  lea 2f(%rip), %rdx\n"
        "  jmp *(%rdx,%rcx,8)\n"
        "  ways_out\n"
        ".pushsection .data.rel.ro, \"aw\"\n"
        ".balign 8\n"
        "2: .quad 3b, 4b, 5b, 4b\n"
        ".popsection\n"
        ".endm\n"
        "body addresses_to_end\n");

static long sum(long x, long unused) { return x * (x + 1) / 2 + unused; }
static long way(long x, long unused)
{
    return unused + (x % 2 ? 2 * x + 1 : x % 4 ? x : 3 * x);
}

static const struct row rows[] = {
    ROW(offsets_to_start, sum), ROW(addresses_to_start, sum), ROW(unknown_to_start, sum),
    ROW(offsets_to_end, way),   ROW(addresses_to_end, way),
};

int main(void) { return call_all(ROWS(rows), 50); }
