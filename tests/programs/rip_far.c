/* Hand-written functions whose instructions depend on their own address: operands relative to rip,
 * the address of an own label, short jumps, loop and jrcxz, next to the entry and next to the exit.
 * The operands are 1.9 GiB after the code, and the 400 MiB before the code are occupied: a
 * trampoline within reach of the code cannot reach the operands.
 *
 *     rip_far
 *
 * Prints `ready`, waits for SIGUSR1, then calls each function and prints `calls NAME N` for each,
 * and `ok SUM` or `wrong NAME`; ends on SIGTERM. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define ROUNDS 2000

#define FUNCTION(name, body)                                                                       \
    __asm__(".text\n.p2align 4\n.globl " #name "\n.type " #name ", @function\n" #name ":\n"         \
            ".cfi_startproc\n" body "\n.cfi_endproc\n.size " #name ", . - " #name "\n"             \
            ".p2align 4\n");                                                                       \
    uint64_t name(uint64_t x)

__asm__(".section .lbss, \"awl\", @nobits\n"
        ".p2align 12\n"
        ".zero 0x79000000\n"
        ".globl far\n"
        "far: .zero 4096\n"
        ".text\n");
extern uint64_t far[512];

/* Operands out of reach. The slots: 0 a number, 1 scratch, 2 a double, 3 a pointer to `twice`,
 * 4 to 7 a vector, 8 and 9 a pair. */
FUNCTION(far_load, "movq far(%rip), %rax\naddq %rdi, %rax\nret");
FUNCTION(far_store, "movq %rdi, far+8(%rip)\nmovq far+8(%rip), %rax\nret");
FUNCTION(far_add, "addq %rdi, far+8(%rip)\nmovq far+8(%rip), %rax\nsubq %rdi, far+8(%rip)\nret");
FUNCTION(far_lea, "leaq far(%rip), %rax\naddq %rdi, %rax\nret");
FUNCTION(far_lea_last, "xorl %eax, %eax\nnop\nleaq far+64(%rip), %rax\nret");
FUNCTION(far_flags, "movl $5, %eax\ncmpq %rdi, far(%rip)\nret");
FUNCTION(far_immediate, "movq $-77, far+8(%rip)\nmovq far+8(%rip), %rax\nret");
FUNCTION(far_byte, "movb $3, far+8(%rip)\nmovzbl far+8(%rip), %eax\naddq %rdi, %rax\nret");
FUNCTION(far_high, "movq %rdi, %rax\nmovb %ah, far+8(%rip)\nmovzbl far+8(%rip), %eax\nret");
FUNCTION(far_double, "addsd far+16(%rip), %xmm0\ncvttsd2si %xmm0, %rax\nret");
FUNCTION(far_pair, "pushq %rbx\n.cfi_adjust_cfa_offset 8\nmovl $7, %eax\nmovl $9, %edx\n"
                   "movq %rdi, %rbx\nxorl %ecx, %ecx\nlock cmpxchg16b far+64(%rip)\n"
                   "movq far+64(%rip), %rax\npopq %rbx\n.cfi_adjust_cfa_offset -8\nret");
FUNCTION(far_pair_first, "lock cmpxchg16b far+64(%rip)\nmovq %rdi, %rax\nret");
/* Instructions that also use the stack pointer. */
FUNCTION(far_push, "pushq far(%rip)\n.cfi_adjust_cfa_offset 8\npopq %rax\n"
                   ".cfi_adjust_cfa_offset -8\nret");
FUNCTION(far_pop, "pushq %rdi\n.cfi_adjust_cfa_offset 8\npopq far+8(%rip)\n"
                  ".cfi_adjust_cfa_offset -8\nmovq far+8(%rip), %rax\nret");
FUNCTION(far_call, "subq $8, %rsp\n.cfi_adjust_cfa_offset 8\ncall *far+24(%rip)\naddq $8, %rsp\n"
                   ".cfi_adjust_cfa_offset -8\nret");
FUNCTION(far_tail, "incq %rdi\nnopl (%rax)\njmp *far+24(%rip)");
FUNCTION(far_red_zone, "movq %rdi, -8(%rsp)\nmovq %rdi, -64(%rsp)\nmovq far(%rip), %rax\n"
                       "addq -8(%rsp), %rax\naddq -64(%rsp), %rax\nret");

/* Addresses of the function's own labels. */
FUNCTION(own_label, "xorl %eax, %eax\n1: leaq 1b(%rip), %rax\nret");
FUNCTION(own_name, "leaq own_name(%rip), %rax\nret");
FUNCTION(own_exit, "leaq 1f(%rip), %rax\n1: ret");
FUNCTION(own_jump, "leaq 1f(%rip), %rcx\nmovq %rdi, %rax\njmp *%rcx\n.byte 0x0f, 0x0b\n"
                   "1: addq $3, %rax\nret");
FUNCTION(own_load, "movl 1f(%rip), %eax\nret\n1: .long 0x01020304");

/* Short jumps in the window of the entry, with targets inside, after and before it. */
FUNCTION(short_in, "testb $1, %dil\nje 1f\nincl %edi\n1: movq %rdi, %rax\nret");
FUNCTION(short_out, "xorl %eax, %eax\ntestb $1, %dil\nje 1f\nleaq 5(%rdi), %rax\nret\n"
                    "1: leaq 9(%rdi), %rax\nret");
FUNCTION(short_back, "xorl %eax, %eax\njmp 2f\n1: leaq 1(%rdi, %rax), %rax\nret\n"
                     "2: incl %eax\ntestb $3, %al\njne 2b\njmp 1b");
FUNCTION(short_self, "decq %rdi\ncmpq $100, %rdi\nja short_self\nmovq %rdi, %rax\nret");
FUNCTION(short_all,
         "xorl %eax, %eax\ncmpq $500, %rdi\njo 1f\njs 2f\njb 3f\nja 4f\njp 5f\nje 6f\nret\n"
         "1: incl %eax\n2: incl %eax\n3: incl %eax\n4: incl %eax\n5: incl %eax\n6: incl %eax\nret");
/* Short jumps next to the exit. */
FUNCTION(short_exit, "leaq 3(%rdi), %rax\ntestb $1, %dil\nje 1f\nincq %rax\n1: ret");
FUNCTION(short_exits, "movq %rdi, %rax\nnegq %rax\ntestb $1, %dil\nje 1f\nret\n1: notq %rax\nret");
FUNCTION(short_tail, "movl $7, %eax\ntestb $1, %dil\nje twice\nret");

/* Counting jumps. */
FUNCTION(loop_first, "movl $3, %ecx\n1: incq %rdi\nloop 1b\nmovq %rdi, %rax\nret");
FUNCTION(loop_entry, "movb $5, %cl\nloop 1f\n1: movzbl %cl, %eax\nret");
FUNCTION(loop_last, "movl %edi, %ecx\nandl $7, %ecx\nincl %ecx\nxorl %eax, %eax\n"
                    "1: addl $3, %eax\nloop 1b\nret");
FUNCTION(loope_last, "movl $9, %ecx\nmovl %edi, %eax\n1: incl %eax\ntestb $4, %al\nloope 1b\nret");
FUNCTION(loopne_last, "movl $9, %ecx\nmovl %edi, %eax\n1: incl %eax\ntestb $4, %al\nloopne 1b\nret");
FUNCTION(jrcxz_entry, "movq %rdi, %rcx\njrcxz 1f\nleaq 2(%rcx), %rax\nret\n1: movl $1, %eax\nret");
FUNCTION(jrcxz_first, "jrcxz 1f\nmovq %rdi, %rax\nret\n1: leaq 4(%rdi), %rax\nret");
FUNCTION(jecxz_last, "leaq 6(%rdi), %rax\nmovl %edi, %ecx\njecxz 1f\nincq %rax\n1: ret");

uint64_t twice(uint64_t x);
__attribute__((noinline, noclone, noipa)) uint64_t twice(uint64_t x) { return 2 * x; }

static uint64_t flagged(uint64_t x)
{
    uint64_t r;
    unsigned char below;
    /* The flags of the comparison must survive the exit. */
    __asm__ volatile("call far_flags\nsetb %1"
                     : "=a"(r), "=qm"(below)
                     : "D"(x)
                     : "cc", "memory", "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11");
    return r + 2 * below;
}

static uint64_t with_double(uint64_t x)
{
    uint64_t r;
    double a = (double)x;
    __asm__ volatile("call far_double" : "=a"(r) : "Yz"(a) : "cc", "memory", "xmm1");
    return r;
}

/* lock cmpxchg16b as the function's first instruction, with its four registers. */
static uint64_t pair_first(uint64_t x)
{
    uint64_t a = 7, d = 9, r;
    unsigned char equal;
    __asm__ volatile("call far_pair_first\nsete %2"
                     : "=a"(r), "+d"(d), "=qm"(equal)
                     : "0"(a), "b"(x), "c"(3L), "D"(x)
                     : "cc", "memory");
    return r + equal;
}

static uint64_t first_zero(uint64_t x)
{
    uint64_t r;
    __asm__ volatile("call jrcxz_first" : "=a"(r) : "c"(x & 1), "D"(x) : "cc", "memory");
    return r;
}

static uint64_t cleared(uint64_t x)
{
    uint64_t r;
    __asm__ volatile("xorl %%ecx, %%ecx\ncall loop_entry" : "=a"(r) : "D"(x) : "rcx", "cc");
    return r;
}

/* The expected results, computed in C. */
#define ADDRESS(p) ((uint64_t)(uintptr_t)(p))
static uint64_t r_load(uint64_t x) { return 1000 + x; }
static uint64_t r_same(uint64_t x) { return x; }
static uint64_t r_add(uint64_t x) { return x + (uint64_t)-77; }
static uint64_t r_lea(uint64_t x) { return ADDRESS(far) + x; }
static uint64_t r_lea_last(uint64_t x) { return (void)x, ADDRESS(far) + 64; }
static uint64_t r_flags(uint64_t x) { return 5 + 2 * (1000 < x); }
static uint64_t r_immediate(uint64_t x) { return (void)x, (uint64_t)-77; }
static uint64_t r_byte(uint64_t x) { return x + 3; }
static uint64_t r_high(uint64_t x) { return x >> 8 & 0xff; }
static uint64_t r_double(uint64_t x) { return x + 3; }
static uint64_t r_pair(uint64_t x) { return (void)x, 11; }
static uint64_t r_push(uint64_t x) { return (void)x, 1000; }
static uint64_t r_call(uint64_t x) { return 2 * x; }
static uint64_t r_tail(uint64_t x) { return 2 * (x + 1); }
static uint64_t r_red_zone(uint64_t x) { return 1000 + 2 * x; }
static uint64_t r_label(uint64_t x) { return (void)x, ADDRESS(own_label) + 2; }
static uint64_t r_name(uint64_t x) { return (void)x, ADDRESS(own_name); }
static uint64_t r_exit(uint64_t x) { return (void)x, ADDRESS(own_exit) + 7; }
static uint64_t r_jump(uint64_t x) { return x + 3; }
static uint64_t r_own_load(uint64_t x) { return (void)x, 0x01020304; }
static uint64_t r_short_in(uint64_t x) { return x & 1 ? x + 1 : x; }
static uint64_t r_short_out(uint64_t x) { return x + (x & 1 ? 5 : 9); }
static uint64_t r_short_back(uint64_t x) { return x + 5; }
static uint64_t r_short_self(uint64_t x) { return x - 1 > 100 ? 100 : x - 1; }
static uint64_t r_short_all(uint64_t x)
{
    uint64_t d = x - 500;
    return x < 500 ? 5 : x > 500 ? 3 : d == 0 ? 2 : 0;
}
static uint64_t r_short_exit(uint64_t x) { return x + 3 + (x & 1); }
static uint64_t r_short_exits(uint64_t x) { return x & 1 ? -x : ~-x; }
static uint64_t r_short_tail(uint64_t x) { return x & 1 ? 7 : 2 * x; }
static uint64_t r_loop_first(uint64_t x) { return x + 3; }
static uint64_t r_loop_entry(uint64_t x) { return (void)x, 4; }
static uint64_t r_loop_last(uint64_t x) { return 3 * ((x & 7) + 1); }
static uint64_t r_loope(uint64_t x)
{
    uint32_t a = (uint32_t)x;
    for (int left = 9;;) {
        a++;
        if (--left == 0 || (a & 4) != 0)
            return a;
    }
}
static uint64_t r_loopne(uint64_t x)
{
    uint32_t a = (uint32_t)x;
    for (int left = 9;;) {
        a++;
        if (--left == 0 || (a & 4) == 0)
            return a;
    }
}
static uint64_t r_jrcxz(uint64_t x) { return x == 0 ? 1 : x + 2; }
static uint64_t r_first_zero(uint64_t x) { return x & 1 ? x : x + 4; }
static uint64_t r_jecxz(uint64_t x) { return x == 0 ? 6 : x + 7; }

static const struct {
    const char *name;
    uint64_t (*call)(uint64_t), (*expected)(uint64_t);
} functions[] = {
    {"far_load", far_load, r_load},
    {"far_store", far_store, r_same},
    {"far_immediate", far_immediate, r_immediate},
    {"far_add", far_add, r_add},
    {"far_lea", far_lea, r_lea},
    {"far_lea_last", far_lea_last, r_lea_last},
    {"far_flags", flagged, r_flags},
    {"far_byte", far_byte, r_byte},
    {"far_high", far_high, r_high},
    {"far_double", with_double, r_double},
    {"far_pair", far_pair, r_pair},
    {"far_pair_first", pair_first, r_same},
    {"far_push", far_push, r_push},
    {"far_pop", far_pop, r_same},
    {"far_call", far_call, r_call},
    {"far_tail", far_tail, r_tail},
    {"far_red_zone", far_red_zone, r_red_zone},
    {"own_label", own_label, r_label},
    {"own_name", own_name, r_name},
    {"own_exit", own_exit, r_exit},
    {"own_jump", own_jump, r_jump},
    {"own_load", own_load, r_own_load},
    {"short_in", short_in, r_short_in},
    {"short_out", short_out, r_short_out},
    {"short_back", short_back, r_short_back},
    {"short_self", short_self, r_short_self},
    {"short_all", short_all, r_short_all},
    {"short_exit", short_exit, r_short_exit},
    {"short_exits", short_exits, r_short_exits},
    {"short_tail", short_tail, r_short_tail},
    {"loop_first", loop_first, r_loop_first},
    {"loop_entry", cleared, r_loop_entry},
    {"loop_last", loop_last, r_loop_last},
    {"loope_last", loope_last, r_loope},
    {"loopne_last", loopne_last, r_loopne},
    {"jrcxz_entry", jrcxz_entry, r_jrcxz},
    {"jrcxz_first", first_zero, r_first_zero},
    {"jecxz_last", jecxz_last, r_jecxz},
};

/* Occupies the free parts of a range. */
static void occupy(uintptr_t from, uintptr_t until)
{
    for (uintptr_t at = from & ~4095ul, step = 1 << 24; at < until; at += step)
        for (uintptr_t piece = at, len = step; piece < at + step; piece += len) {
            void *wanted = (void *)piece;
            int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
            while (mmap(wanted, len, PROT_NONE, flags, -1, 0) == MAP_FAILED && len > 4096)
                len /= 2;
        }
}

int main(void)
{
    extern const char __executable_start[], _end[];
    uintptr_t start = (uintptr_t)__executable_start, end = (uintptr_t)_end;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, NULL);
    occupy(start - (400ul << 20), start);
    occupy(end, start + (2ul << 30));
    far[0] = 1000;
    far[3] = ADDRESS(twice);
    ((double *)far)[2] = 3.0;
    far[8] = 11, far[9] = 12;
    puts("ready");
    fflush(stdout);
    int number;
    sigwait(&set, &number);
    uint64_t sum = 0;
    for (size_t f = 0; f < sizeof functions / sizeof *functions; f++) {
        for (uint64_t x = 0; x < ROUNDS; x++) {
            uint64_t argument = functions[f].call == short_self ? x + 1 : x;
            uint64_t r = functions[f].call(argument);
            sum = sum * 31 + r % 4096;
            if (r != functions[f].expected(argument)) {
                printf("wrong %s(%llu): %#llx\n", functions[f].name, (unsigned long long)argument,
                       (unsigned long long)r);
                return 1;
            }
        }
        printf("calls %s %d\n", functions[f].name, ROUNDS);
    }
    printf("ok %llu\n", (unsigned long long)sum);
    fflush(stdout);
    sigwait(&set, &number);
    return 0;
}
