/* Functions whose first or last bytes are branch targets: of their own loop with a short and a long
 * jump, of other functions, directly and through a pointer, and of an early exit. */
#include "body.h"

#define BOTH(name) function name, name##_padded

BOTH(loop_short);
BOTH(loop_long);
BOTH(loop_to_start);
BOTH(loop_to_call);
BOTH(early_out);
BOTH(early_out_pop);
BOTH(entered_short);
BOTH(entered_long);
BOTH(entered_if);
BOTH(entered_pointer);
BOTH(entered_call);
BOTH(enters_short);
BOTH(enters_long);
BOTH(enters_if);
BOTH(enters_pointer);
BOTH(enters_call);

__asm__(/* 1 + ... + x */
        ".macro loop_short_body name\n"
        "  mov %edi, %ecx\n"
        "  xor %eax, %eax\n"
        "1: add %rcx, %rax\n" /* at +4 */
        "  dec %rcx\n"
        "  jnz 1b\n"
        "  ret\n"
        ".endm\n"
        "body loop_short\n"

        ".macro loop_long_body name\n"
        "  mov %edi, %ecx\n"
        "  xor %eax, %eax\n"
        "1: add %rcx, %rax\n"
        "  dec %rcx\n"
        "  {disp32} jnz 1b\n"
        "  ret\n"
        ".endm\n"
        "body loop_long\n"

        /* The jump back to the first instruction is not a call. */
        ".macro loop_to_start_body name\n"
        "  add %rdi, %rsi\n"
        "  dec %rdi\n"
        "  jnz \\name\n"
        "  mov %rsi, %rax\n"
        "  ret\n"
        ".endm\n"
        "body loop_to_start\n"

        ".macro loop_to_call_body name\n"
        "  push %rbx\n"
        "  .cfi_def_cfa_offset 16\n"
        "  .cfi_offset %rbx, -16\n"
        "  xor %ebx, %ebx\n"
        "1: call add_it\n" /* at +3 */
        "  dec %rdi\n"
        "  jnz 1b\n"
        "  mov %rbx, %rax\n"
        "  pop %rbx\n"
        "  .cfi_def_cfa_offset 8\n"
        "  ret\n"
        ".endm\n"
        "body loop_to_call\n"
        "function add_it\n"
        "  add %rdi, %rbx\n"
        "  ret\n"
        "end add_it\n"

        /* 0 for even numbers, else x + 1 */
        ".macro early_out_body name\n"
        "  xor %eax, %eax\n"
        "  test $1, %dil\n"
        "  jz 1f\n"
        "  lea 1(%rdi), %rax\n"
        "1: ret\n"
        ".endm\n"
        "body early_out\n"

        ".macro early_out_pop_body name\n"
        "  push %rbx\n"
        "  .cfi_def_cfa_offset 16\n"
        "  .cfi_offset %rbx, -16\n"
        "  xor %eax, %eax\n"
        "  mov %rdi, %rbx\n"
        "  test $1, %dil\n"
        "  jz 1f\n"
        "  lea 1(%rbx), %rax\n"
        "1: pop %rbx\n"
        "  .cfi_def_cfa_offset 8\n"
        "  ret\n"
        ".endm\n"
        "body early_out_pop\n"

        /* x + 3. The next function enters each at +2, after its first instruction. */
        ".macro entered_short_body name\n"
        "  xor %eax, %eax\n"
        ".L\\name: lea 3(%rax,%rdi), %rax\n"
        "  ret\n"
        ".endm\n"
        "body entered_short\n"
        ".macro enters kind\n"
        "  function enters_\\kind\n"
        "  enter_\\kind .Lentered_\\kind\n"
        "  end enters_\\kind\n"
        "  function enters_\\kind\\()_padded\n"
        "  enter_\\kind .Lentered_\\kind\\()_padded\n"
        "  end enters_\\kind\\()_padded\n"
        "  padding\n"
        ".endm\n"
        ".macro enter_short to\n"
        "  mov $10, %eax\n"
        "  jmp \\to\n"
        ".endm\n"
        "enters short\n"

        ".macro entered_long_body name\n"
        "  xor %eax, %eax\n"
        ".L\\name: lea 3(%rax,%rdi), %rax\n"
        "  ret\n"
        ".endm\n"
        "body entered_long\n"
        ".macro enter_long to\n"
        "  mov $10, %eax\n"
        "  {disp32} jmp \\to\n"
        ".endm\n"
        "enters long\n"

        ".macro entered_if_body name\n"
        "  xor %eax, %eax\n"
        ".L\\name: lea 3(%rax,%rdi), %rax\n"
        "  ret\n"
        ".endm\n"
        "body entered_if\n"
        ".macro enter_if to\n"
        "  mov $10, %eax\n"
        "  test %edi, %edi\n"
        "  {disp32} jnz \\to\n"
        "  ud2\n"
        ".endm\n"
        "enters if\n"

        ".macro entered_pointer_body name\n"
        "  xor %eax, %eax\n"
        ".L\\name: lea 3(%rax,%rdi), %rax\n"
        "  ret\n"
        ".endm\n"
        "body entered_pointer\n"
        ".macro enter_pointer to\n"
        "  mov $10, %eax\n"
        "  lea \\to(%rip), %rdx\n"
        "  jmp *%rdx\n"
        ".endm\n"
        "enters pointer\n"

        ".macro entered_call_body name\n"
        "  xor %eax, %eax\n"
        ".L\\name: lea 3(%rax,%rdi), %rax\n"
        "  ret\n"
        ".endm\n"
        "body entered_call\n"
        ".macro enter_call to\n"
        "  mov $10, %eax\n"
        "  call \\to\n"
        "  ret\n"
        ".endm\n"
        "enters call\n");

static long sum(long x, long unused) { return x * (x + 1) / 2 + unused; }
static long odd(long x, long unused) { return x % 2 ? x + 1 : unused; }
static long plus_3(long x, long unused) { return x + 3 + unused; }
static long plus_13(long x, long unused) { return x + 13 + unused; }

static const struct row rows[] = {
    ROW(loop_short, sum),         ROW(loop_long, sum),         ROW(loop_to_start, sum),
    ROW(loop_to_call, sum),       ROW(early_out, odd),         ROW(early_out_pop, odd),
    ROW(entered_short, plus_3),   ROW(entered_long, plus_3),   ROW(entered_if, plus_3),
    ROW(entered_pointer, plus_3), ROW(entered_call, plus_3),   ROW(enters_short, plus_13),
    ROW(enters_long, plus_13),    ROW(enters_if, plus_13),     ROW(enters_pointer, plus_13),
    ROW(enters_call, plus_13),
};

int main(void) { return call_all(ROWS(rows), 50); }
