/* Calls functions that take and return values in every register: all general registers, the
 * flags, the x87 stack and its control word, MXCSR, and xmm, ymm, or zmm and mask registers,
 * depending on the processor. On new paths and on new threads, each of which makes its first
 * probed call here. */
#define _GNU_SOURCE
#define END_WITH "ret\n"
#define FOLLOWED_BY ".skip 16, 0x90\n"
#include "function.h"

#include <cpuid.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))

enum { XMM, YMM, ZMM };
int level;

/* The assembly below knows the offsets. */
struct state {
    uint64_t general[15]; /* rax rcx rdx rbx rbp rsi rdi r8 to r15 */
    uint64_t flags;       /* at 120 */
    uint8_t x87[4][16];   /* at 128 */
    uint32_t mxcsr;       /* at 192 */
    uint16_t control, unused;
    uint64_t masks[7];        /* at 200: k1 to k7 */
    uint8_t vectors[32][64]; /* at 256 */
};
_Static_assert(__builtin_offsetof(struct state, vectors) == 256, "offset");

/* Loads all registers from `in`, calls, and stores all in `out`. */
void call_with(const struct state *in, struct state *out, void (*call)(void));

__asm__(".text\n"
        ".altmacro\n"
        ".macro each from, to, what, reg, width, size\n"
        "each_number = \\from\n"
        ".rept \\to - \\from + 1\n"
        "each_one \\what, \\reg, %each_number, \\size\n"
        "each_number = each_number + 1\n"
        ".endr\n"
        ".endm\n"
        ".macro each_one what, reg, number, size\n"
        "\\what \\reg, \\number, \\size\n"
        ".endm\n"
        ".macro load_vector reg, number, unused\n"
        ".ifc \\reg,xmm\n movups 256+64*\\number(%rdi), %xmm\\number\n"
        ".else\n vmovups 256+64*\\number(%rdi), %\\reg\\number\n .endif\n"
        ".endm\n"
        ".macro store_vector reg, number, unused\n"
        ".ifc \\reg,xmm\n movups %xmm\\number, 256+64*\\number(%rdi)\n"
        ".else\n vmovups %\\reg\\number, 256+64*\\number(%rdi)\n .endif\n"
        ".endm\n"
        ".macro load_mask reg, number, unused\n"
        "kmovw 192+8*\\number(%rdi), %k\\number\n"
        ".endm\n"
        ".macro store_mask reg, number, unused\n"
        "kmovw %k\\number, 192+8*\\number(%rdi)\n"
        ".endm\n"
        ".macro change_vector reg, number, unused\n"
        ".ifc \\reg,xmm\n paddd ones(%rip), %xmm\\number\n"
        ".else\n vpaddd ones(%rip), %\\reg\\number, %\\reg\\number\n .endif\n"
        ".endm\n"
        ".macro change_mask reg, number, unused\n"
        "knotw %k\\number, %k\\number\n"
        ".endm\n"
        ".section .rodata\n"
        ".balign 64\n"
        "ones:\n"
        ".rept 16\n .long 0x3f800000\n .endr\n"
        "default_mxcsr: .long 0x1f80\n"
        "default_control: .word 0x37f\n"
        ".text\n"
        ".globl call_with\n"
        ".type call_with, @function\n"
        "call_with:\n"
        ".cfi_startproc\n"
        ".irp reg, rbp, rbx, r12, r13, r14, r15\n"
        "push %\\reg\n"
        ".cfi_adjust_cfa_offset 8\n"
        ".cfi_rel_offset \\reg, 0\n"
        ".endr\n"
        "sub $24, %rsp\n"
        ".cfi_adjust_cfa_offset 24\n"
        "mov %rsi, (%rsp)\n"
        "mov %rdx, 8(%rsp)\n"
        "cmpl $1, level(%rip)\n"
        "ja 1f\n"
        "je 2f\n"
        "each 0, 15, load_vector, xmm\n"
        "jmp 3f\n"
        "1: each 0, 31, load_vector, zmm\n"
        "each 1, 7, load_mask, k\n"
        "jmp 3f\n"
        "2: each 0, 15, load_vector, ymm\n"
        "3: ldmxcsr 192(%rdi)\n"
        "fldcw 196(%rdi)\n"
        "fldt 128(%rdi)\n"
        "fldt 144(%rdi)\n"
        "fldt 160(%rdi)\n"
        "fldt 176(%rdi)\n"
        "push 120(%rdi)\n"
        ".cfi_adjust_cfa_offset 8\n"
        "popf\n"
        ".cfi_adjust_cfa_offset -8\n"
        "mov (%rdi), %rax\n"
        "mov 8(%rdi), %rcx\n"
        "mov 16(%rdi), %rdx\n"
        "mov 24(%rdi), %rbx\n"
        "mov 32(%rdi), %rbp\n"
        "mov 40(%rdi), %rsi\n"
        "mov 56(%rdi), %r8\n"
        "mov 64(%rdi), %r9\n"
        "mov 72(%rdi), %r10\n"
        "mov 80(%rdi), %r11\n"
        "mov 88(%rdi), %r12\n"
        "mov 96(%rdi), %r13\n"
        "mov 104(%rdi), %r14\n"
        "mov 112(%rdi), %r15\n"
        "mov 48(%rdi), %rdi\n"
        "call *8(%rsp)\n"
        "mov %rdi, 16(%rsp)\n"
        "mov (%rsp), %rdi\n"
        "pushf\n"
        ".cfi_adjust_cfa_offset 8\n"
        "pop 120(%rdi)\n"
        ".cfi_adjust_cfa_offset -8\n"
        "cld\n"
        "mov %rax, (%rdi)\n"
        "mov %rcx, 8(%rdi)\n"
        "mov %rdx, 16(%rdi)\n"
        "mov %rbx, 24(%rdi)\n"
        "mov %rbp, 32(%rdi)\n"
        "mov %rsi, 40(%rdi)\n"
        "mov 16(%rsp), %rax\n"
        "mov %rax, 48(%rdi)\n"
        "mov %r8, 56(%rdi)\n"
        "mov %r9, 64(%rdi)\n"
        "mov %r10, 72(%rdi)\n"
        "mov %r11, 80(%rdi)\n"
        "mov %r12, 88(%rdi)\n"
        "mov %r13, 96(%rdi)\n"
        "mov %r14, 104(%rdi)\n"
        "mov %r15, 112(%rdi)\n"
        "fstpt 176(%rdi)\n"
        "fstpt 160(%rdi)\n"
        "fstpt 144(%rdi)\n"
        "fstpt 128(%rdi)\n"
        "stmxcsr 192(%rdi)\n"
        "fnstcw 196(%rdi)\n"
        "ldmxcsr default_mxcsr(%rip)\n"
        "fldcw default_control(%rip)\n"
        "cmpl $1, level(%rip)\n"
        "ja 1f\n"
        "je 2f\n"
        "each 0, 15, store_vector, xmm\n"
        "jmp 3f\n"
        "1: each 0, 31, store_vector, zmm\n"
        "each 1, 7, store_mask, k\n"
        "vzeroupper\n"
        "jmp 3f\n"
        "2: each 0, 15, store_vector, ymm\n"
        "vzeroupper\n"
        "3: add $24, %rsp\n"
        ".cfi_adjust_cfa_offset -24\n"
        ".irp reg, r15, r14, r13, r12, rbx, rbp\n"
        "pop %\\reg\n"
        ".cfi_adjust_cfa_offset -8\n"
        ".cfi_restore \\reg\n"
        ".endr\n"
        "ret\n"
        ".cfi_endproc\n"
        ".size call_with, . - call_with\n"
        "function passes\n"
        "nopl 0(%rax, %rax)\n"
        "end passes\n"
        "function changes_general\n"
        ".irp reg, rax, rcx, rdx, rbx, rbp, rsi, rdi, r8, r9, r10, r11, r12, r13, r14, r15\n"
        "lea 1(%\\reg), %\\reg\n"
        ".endr\n"
        "end changes_general\n"
        /* Changes all of CF, PF, AF, ZF, SF and OF; the other function changes DF. */
        "function changes_flags\n"
        "pushf\n"
        ".cfi_adjust_cfa_offset 8\n"
        "xorl $0x8d5, (%rsp)\n"
        "popf\n"
        ".cfi_adjust_cfa_offset -8\n"
        "end changes_flags\n"
        "function changes_direction\n"
        "pushf\n"
        ".cfi_adjust_cfa_offset 8\n"
        "xorl $0x400, (%rsp)\n"
        "popf\n"
        ".cfi_adjust_cfa_offset -8\n"
        "end changes_direction\n"
        "function changes_x87\n"
        "fchs\n"
        "fxch %st(1)\n"
        "fchs\n"
        "fxch %st(1)\n"
        "end changes_x87\n"
        "function changes_xmm\n"
        "each 0, 15, change_vector, xmm\n"
        "end changes_xmm\n"
        "function changes_ymm\n"
        "each 0, 15, change_vector, ymm\n"
        "end changes_ymm\n"
        "function changes_zmm\n"
        "each 0, 31, change_vector, zmm\n"
        "each 1, 7, change_mask, k\n"
        "end changes_zmm\n"
        ".noaltmacro\n");

void passes(void), changes_general(void), changes_flags(void), changes_direction(void);
void changes_x87(void), changes_xmm(void), changes_ymm(void), changes_zmm(void);

enum { FLAGS = 0x8d5, DIRECTION = 0x400 };

/* The effect of each function on a state. */
static void to_passes(struct state *state) { (void)state; }
static void to_changes_general(struct state *state)
{
    for (int i = 0; i < 15; i++)
        state->general[i]++;
}
static void to_changes_flags(struct state *state) { state->flags ^= FLAGS; }
static void to_changes_direction(struct state *state) { state->flags ^= DIRECTION; }
static void to_changes_x87(struct state *state)
{
    state->x87[3][9] ^= 0x80;
    state->x87[2][9] ^= 0x80;
}
static void add_lanes(struct state *state, int registers, int lanes)
{
    for (int i = 0; i < registers; i++)
        for (int lane = 0; lane < lanes; lane++) {
            uint32_t word;
            memcpy(&word, state->vectors[i] + 4 * lane, 4);
            word += 0x3f800000;
            memcpy(state->vectors[i] + 4 * lane, &word, 4);
        }
}
static void to_changes_xmm(struct state *state) { add_lanes(state, 16, 4); }
static void to_changes_ymm(struct state *state)
{
    add_lanes(state, 16, 8);
    /* The bits above the result are cleared. */
    for (int i = 0; i < 16 && level == ZMM; i++)
        memset(state->vectors[i] + 32, 0, 32);
}
static void to_changes_zmm(struct state *state)
{
    add_lanes(state, 32, 16);
    for (int i = 0; i < 7; i++)
        state->masks[i] ^= 0xffff;
}

/* Vectors as C passes them. */
typedef double v2 __attribute__((vector_size(16)));
typedef double v4 __attribute__((vector_size(32)));
typedef double v8 __attribute__((vector_size(64)));

#define VECTORS(name, type, isa)                                                                    \
    __attribute__((target(isa), noinline, noclone, noipa)) void name(                               \
        type a, type b, type c, type d, type e, type f, type g, type h, type *out)                  \
    {                                                                                               \
        *out = a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h;                           \
    }                                                                                               \
    __attribute__((target(isa), noinline, noclone, noipa)) type name##_back(                        \
        type a, type b, type c, type d, type e, type f, type g, type h)                             \
    {                                                                                               \
        return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h;                           \
    }                                                                                               \
    __attribute__((target(isa), noinline, noclone, noipa)) static double call_##name(double x)      \
    {                                                                                               \
        type v = {0}, got;                                                                          \
        for (unsigned i = 0; i < sizeof v / 8; i++)                                                 \
            v[i] = x + i;                                                                           \
        name(v, v + 1, v + 2, v + 3, v + 4, v + 5, v + 6, v + 7, &got);                             \
        type back = name##_back(v, v + 1, v + 2, v + 3, v + 4, v + 5, v + 6, v + 7);                \
        double sum = 0;                                                                             \
        for (unsigned i = 0; i < sizeof v / 8; i++)                                                 \
            sum += (i + 1) * got[i] + (back[i] == got[i] ? 0 : 0.5);                                \
        return sum;                                                                                 \
    }
VECTORS(takes_xmm, v2, "sse2")
VECTORS(takes_ymm, v4, "avx2")
VECTORS(takes_zmm, v8, "avx512f")

NOINLINE long double extended(long double a, double b) { return a / 3 + b; }
NOINLINE _Complex long double both(long double a, long double b)
{
    return __builtin_complex(a * 3, b / 7);
}
/* `al` is the upper bound for the number of vector registers to store. */
NOINLINE double sum_of(const char *kinds, ...)
{
    double sum = 0;
    va_list list;
    va_start(list, kinds);
    for (; *kinds; kinds++)
        sum += *kinds == 'd' ? va_arg(list, double) : va_arg(list, int);
    va_end(list);
    return sum;
}
/* The compiler knows that it preserves all but a few registers: -fipa-ra. */
static __attribute__((noinline, noclone)) long light(long x) { return x * 3 + 1; }
NOINLINE static long around_light(long a, long b, long c, long d, long e, long f)
{
    long g = a ^ b, h = c + d;
    double u = a * 0.5, v = b * 0.25;
    long x = light(a);
    return x + a + 3 * b + 5 * c + 7 * d + 11 * e + 13 * f + 17 * g + 19 * h + (long)(u * v);
}

enum row {
    PASSES, GENERAL, ALL_FLAGS, DIRECTIONS, X87, CHANGES_XMM, CHANGES_YMM, CHANGES_ZMM, KINDS
};
static const struct {
    const char *name;
    void (*call)(void);
    void (*to)(struct state *);
    int least;
} rows[KINDS] = {
    {"passes", passes, to_passes, XMM},
    {"changes_general", changes_general, to_changes_general, XMM},
    {"changes_flags", changes_flags, to_changes_flags, XMM},
    {"changes_direction", changes_direction, to_changes_direction, XMM},
    {"changes_x87", changes_x87, to_changes_x87, XMM},
    {"changes_xmm", changes_xmm, to_changes_xmm, XMM},
    {"changes_ymm", changes_ymm, to_changes_ymm, YMM},
    {"changes_zmm", changes_zmm, to_changes_zmm, ZMM},
};

static long calls[KINDS], wrong, rounds, vectors[3], others;
static double results;

static uint64_t seed = 88172645463325252u;
static uint64_t next(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

static void differ(const char *name, const char *what, int number)
{
    if (wrong++ < 20)
        printf("%s: %s %d differs\n", name, what, number);
}

NOINLINE static void check(int row)
{
    struct state in, out, expected;
    memset(&in, 0, sizeof in);
    for (int i = 0; i < 15; i++)
        in.general[i] = next();
    uint64_t flags = FLAGS | (row == DIRECTIONS || row == PASSES ? DIRECTION : 0);
    in.flags = (next() & flags) | 0x202;
    for (int i = 0; i < 4; i++) {
        long double value = (long double)(int64_t)next() / 3;
        memcpy(in.x87[i], &value, 10);
    }
    /* Every exception masked, with some rounding mode and precision. */
    in.mxcsr = 0x1f80 | (next() & 3) << 13;
    in.control = 0x7f | (next() & 3) << 10 | 0x300;
    for (int i = 0; i < 7; i++)
        in.masks[i] = level == ZMM ? next() & 0xffff : 0;
    int registers = level == ZMM ? 32 : 16, words = 4 << level;
    for (int i = 0; i < registers; i++)
        for (int word = 0; word < words; word++) {
            uint32_t value = next();
            memcpy(in.vectors[i] + 4 * word, &value, 4);
        }
    expected = in;
    rows[row].to(&expected);
    out = in;
    call_with(&in, &out, rows[row].call);
    calls[row]++;
    for (int i = 0; i < 15; i++)
        if (out.general[i] != expected.general[i])
            differ(rows[row].name, "general register", i);
    uint64_t all = FLAGS | DIRECTION;
    if ((out.flags & all) != (expected.flags & all))
        differ(rows[row].name, "flags", (out.flags ^ expected.flags) & all);
    for (int i = 0; i < 4; i++)
        if (memcmp(out.x87[i], expected.x87[i], 10))
            differ(rows[row].name, "st", i);
    /* The function itself may set the inexact flag. */
    if ((out.mxcsr & ~0x3fu) != (expected.mxcsr & ~0x3fu))
        differ(rows[row].name, "mxcsr", out.mxcsr);
    if (out.control != expected.control)
        differ(rows[row].name, "control word", out.control);
    for (int i = 0; i < 7; i++)
        if (out.masks[i] != expected.masks[i])
            differ(rows[row].name, "k", i + 1);
    for (int i = 0; i < registers; i++)
        if (memcmp(out.vectors[i], expected.vectors[i], 4 * words))
            differ(rows[row].name, "vector register", i);
}

NOINLINE static void compiled(int which, double x)
{
    double got = 0;
    if (which == 0 && level >= XMM)
        vectors[XMM]++, got = call_takes_xmm(x);
    if (which == 1 && level >= YMM)
        vectors[YMM]++, got = call_takes_ymm(x);
    if (which == 2 && level >= ZMM)
        vectors[ZMM]++, got = call_takes_zmm(x);
    if (which == 3) {
        others++;
        _Complex long double pair = both(x, x + 1);
        got = (double)extended(x, 0.125) + (double)__real__ pair + (double)__imag__ pair;
        got += sum_of("didid", x, 3, x + 0.5, 4, 0.25) + sum_of("ii", 1, 2);
        got += around_light((long)x, 2, 3, 4, 5, 6);
    }
    results = results * 0.75 + got;
}

/* Each depth is a separate path; the second call of each round is on a known one. */
NOINLINE static void at_depth(int depth, int row)
{
    if (depth > 0)
        at_depth(depth - 1, row);
    else
        for (int i = 0; i < 2; i++)
            row < KINDS ? check(row) : compiled(row - KINDS, rounds++ % 100);
    __asm__ volatile("");
}

static void *first_call(void *row)
{
    at_depth(1, (int)(intptr_t)row);
    return NULL;
}

int main(void)
{
    __builtin_cpu_init();
    level = __builtin_cpu_supports("avx512f") ? ZMM : __builtin_cpu_supports("avx2") ? YMM : XMM;
    for (int row = 0; row < KINDS + 4; row++) {
        if (row < KINDS && rows[row].least > level)
            continue;
        for (int i = 0; i < 8; i++) {
            pthread_t thread;
            pthread_create(&thread, NULL, first_call, (void *)(intptr_t)row);
            pthread_join(thread, NULL);
        }
        for (int depth = 0; depth < 40; depth++)
            at_depth(depth % 32, row);
    }
    for (int row = 0; row < KINDS; row++)
        printf("calls %s %ld\n", rows[row].name, calls[row]);
    printf("calls takes_xmm %ld\ncalls takes_xmm_back %ld\n", vectors[XMM], vectors[XMM]);
    printf("calls takes_ymm %ld\ncalls takes_ymm_back %ld\n", vectors[YMM], vectors[YMM]);
    printf("calls takes_zmm %ld\ncalls takes_zmm_back %ld\n", vectors[ZMM], vectors[ZMM]);
    printf("calls extended %ld\ncalls both %ld\ncalls light %ld\n", others, others, others);
    printf("calls sum_of %ld\n", 2 * others);
    printf("results %.17g\n%s\n", results, wrong ? "wrong" : "ok");
    return wrong != 0;
}
