/* Threads that call functions of difficult shapes and check every result.
 *
 *     windows CASE THREADS ROUNDS [COUNTER_FILE]
 *
 * Calls the functions of CASE in turn, ROUNDS times in each thread, or with ROUNDS 0 until SIGTERM.
 * Ends with one line, `ok calls` and the calls of each function, or `wrong FUNCTION ROUND`.
 * COUNTER_FILE holds lines of eight 64-bit numbers. The first number of the first line is the gate:
 * set to 1 by a test, it holds every thread outside the functions. Then there is a line for each
 * thread: the calls of each function, and as the last number 1 while it is held. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))
#define FUNCTIONS 4
#define MOST 16
#define HELD 7
#define BYTES 65536

struct line {
    _Atomic uint64_t numbers[8];
};

struct worker {
    uint8_t from[2][BYTES], to[BYTES + 1];
};

/* A function: `check` calls it with arguments made from x, and returns 1 if the result is right. */
struct shape {
    const char *name;
    int (*check)(struct worker *worker, uint64_t x);
};

/* FUNCTION(NAME) ... END(NAME): a function as written by hand in assembly. */
#define FUNCTION(name) ".globl " #name "\n.type " #name ",@function\n" #name ":\n.cfi_startproc\n"
#define END(name) ".cfi_endproc\n.size " #name ",.-" #name "\n"

/* --- pc: slow instructions in the bytes that are overwritten ---------------------------------- */

uint64_t copy_at_entry(void *to, const void *from, uint64_t x, uint64_t bytes);
uint64_t copy_at_exit(void *to, const void *from, uint64_t x, uint64_t bytes);
uint64_t cpuid_at_both(void *unused, uint64_t x);
uint64_t copy_then_jump(void *to, const void *from, uint64_t x, uint64_t bytes);

/* Each is followed by int3 and not by padding, so that an exit needs the bytes before it. */
__asm__(".text\n.p2align 4\n"
        FUNCTION(copy_at_entry)
        "  pause\n"
        "  rep movsb\n"
        "  lea 1(%rdx), %rax\n"
        "  lea (%rax, %rax), %rax\n"
        "  pause\n"
        "  ret\n"
        END(copy_at_entry)
        ".fill 5, 1, 0xcc\n"
        FUNCTION(copy_at_exit)
        "  lea 1(%rdx, %rdx), %rax\n"
        "  rep movsb\n"
        "  pause\n"
        "  ret\n"
        END(copy_at_exit)
        ".fill 5, 1, 0xcc\n"
        FUNCTION(cpuid_at_both)
        "  push %rbx\n"
        "  .cfi_def_cfa_offset 16\n"
        "  .cfi_offset %rbx, -16\n"
        "  cpuid\n"
        "  lea 3(%rsi, %rsi), %rsi\n"
        "  xor %eax, %eax\n"
        "  cpuid\n"
        "  xchg %rax, %rsi\n"
        "  pop %rbx\n"
        "  .cfi_def_cfa_offset 8\n"
        "  .cfi_restore %rbx\n"
        "  ret\n"
        END(cpuid_at_both)
        ".fill 5, 1, 0xcc\n"
        /* A tail jump of two bytes after the slow instruction. */
        FUNCTION(copy_then_jump)
        "  lea plus_nine(%rip), %r8\n"
        "  pause\n"
        "  rep movsb\n"
        "  jmp *%r8\n"
        END(copy_then_jump)
        ".fill 5, 1, 0xcc\n"
        FUNCTION(plus_nine)
        "  lea 9(%rdx), %rax\n"
        "  ret\n"
        END(plus_nine)
        ".fill 5, 1, 0xcc\n");

static int copied(struct worker *worker, uint64_t x,
                  uint64_t (*copy)(void *, const void *, uint64_t, uint64_t), uint64_t expected)
{
    const uint8_t *from = worker->from[x & 1];
    if (copy(worker->to, from, x, BYTES) != expected)
        return 0;
    /* every 61st byte, the last one, and the one after it */
    for (int i = 0; i < BYTES; i += 61)
        if (worker->to[i] != from[i])
            return 0;
    return worker->to[BYTES - 1] == from[BYTES - 1] && worker->to[BYTES] == 0x5a;
}

static int check_copy_at_entry(struct worker *worker, uint64_t x)
{
    return copied(worker, x, copy_at_entry, 2 * (x + 1));
}

static int check_copy_at_exit(struct worker *worker, uint64_t x)
{
    return copied(worker, x + 1, copy_at_exit, 2 * (x + 1) + 1);
}

static int check_cpuid_at_both(struct worker *worker, uint64_t x)
{
    return cpuid_at_both(worker, x) == 2 * x + 3;
}

static int check_copy_then_jump(struct worker *worker, uint64_t x)
{
    return copied(worker, x, copy_then_jump, x + 9);
}

/* --- branch: branches into the bytes that are overwritten ------------------------------------- */

uint64_t loop_head(uint64_t x, uint64_t n);
uint64_t loop_to_entry(uint64_t x, uint64_t n);
uint64_t shared_body(uint64_t x);
uint64_t enters_shared_body(uint64_t x, uint64_t n);

__asm__(".text\n.p2align 4\n"
        FUNCTION(loop_head)
        "  xor %eax, %eax\n"
        "1: add %rdi, %rax\n"
        "  dec %rsi\n"
        "  jnz 1b\n"
        "  ret\n"
        END(loop_head)
        ".fill 5, 1, 0xcc\n"
        FUNCTION(loop_to_entry)
        "  dec %rsi\n"
        "  lea 1(%rdi, %rdi), %rdi\n"
        "  jnz loop_to_entry\n"
        "  mov %rdi, %rax\n"
        "  ret\n"
        END(loop_to_entry)
        ".fill 5, 1, 0xcc\n"
        FUNCTION(shared_body)
        "  mov %rdi, %rax\n"
        ".Lshared:\n"
        "  imul $3, %rax\n"
        "  ret\n"
        END(shared_body)
        ".fill 5, 1, 0xcc\n"
        FUNCTION(enters_shared_body)
        "  lea 5(%rdi), %rax\n"
        "  test $1, %esi\n"
        "  jnz .Lshared\n"
        "  inc %rax\n"
        "  jmp .Lshared\n"
        END(enters_shared_body)
        ".fill 5, 1, 0xcc\n");

static int check_loop_head(struct worker *worker, uint64_t x)
{
    (void)worker;
    uint64_t n = x % 11 + 1;
    return loop_head(x, n) == x * n;
}

static int check_loop_to_entry(struct worker *worker, uint64_t x)
{
    (void)worker;
    uint64_t n = x % 13 + 1;
    return loop_to_entry(x, n) == (x << n) + (((uint64_t)1 << n) - 1);
}

static int check_shared_body(struct worker *worker, uint64_t x)
{
    (void)worker;
    return shared_body(x) == 3 * x;
}

static int check_enters_shared_body(struct worker *worker, uint64_t x)
{
    (void)worker;
    return enters_shared_body(x, x) == 3 * (x + 5 + !(x & 1));
}

/* --- table: jump tables with targets in the bytes that are overwritten ------------------------ */

uint64_t table_to_head(uint64_t x, uint64_t n);
uint64_t table_to_exit(uint64_t x, uint64_t n);

__asm__(".text\n.p2align 4\n"
        FUNCTION(table_to_head)
        "  xor %eax, %eax\n"
        ".Lagain:\n"
        "  add %rdi, %rax\n"
        "  dec %rsi\n"
        ".Lnext:\n"
        "  mov %esi, %ecx\n"
        "  cmp $3, %rsi\n"
        "  ja .Lagain\n"
        "  lea .Lhead_table(%rip), %rdx\n"
        "  movslq (%rdx, %rcx, 4), %rcx\n"
        "  add %rdx, %rcx\n"
        "  jmp *%rcx\n"
        ".Lfive:\n"
        "  add $5, %rax\n"
        "  dec %rsi\n"
        "  jmp .Lnext\n"
        ".Lleave:\n"
        "  ret\n"
        END(table_to_head)
        ".fill 5, 1, 0xcc\n"
        FUNCTION(table_to_exit)
        "  lea 100(%rdi), %rax\n"
        "  cmp $3, %rsi\n"
        "  ja 4f\n"
        "  lea .Lexit_table(%rip), %rdx\n"
        "  movslq (%rdx, %rsi, 4), %rcx\n"
        "  add %rdx, %rcx\n"
        "  jmp *%rcx\n"
        "4: inc %rax\n"
        ".Lexit3:\n"
        "  inc %eax\n"
        ".Lexit2:\n"
        "  inc %eax\n"
        ".Lexit1:\n"
        "  inc %eax\n"
        ".Lexit0:\n"
        "  ret\n"
        END(table_to_exit)
        ".fill 5, 1, 0xcc\n"
        ".section .rodata\n.balign 4\n"
        ".Lhead_table: .long .Lleave - .Lhead_table, .Lagain - .Lhead_table,"
        " .Lfive - .Lhead_table, .Lagain - .Lhead_table\n"
        ".Lexit_table: .long .Lexit0 - .Lexit_table, .Lexit1 - .Lexit_table,"
        " .Lexit2 - .Lexit_table, .Lexit3 - .Lexit_table\n"
        ".text\n");

static int check_table_to_head(struct worker *worker, uint64_t x)
{
    (void)worker;
    uint64_t n = x % 9 + 1, expected = x;
    for (uint64_t left = n - 1; left != 0; left--)
        expected += left == 2 ? 5 : x;
    return table_to_head(x, n) == expected;
}

static int check_table_to_exit(struct worker *worker, uint64_t x)
{
    (void)worker;
    x &= 0xffff;
    uint64_t n = x % 6;
    return table_to_exit(x, n) == x + 100 + (n > 3 ? 4 : n);
}

/* --- data: a table between the instructions ---------------------------------------------------- */

uint64_t data_amid(uint64_t n);
uint64_t data_like_code(uint64_t n);
uint64_t data_after(uint64_t n);
uint64_t data_called_over(uint64_t n);

__asm__(".text\n.p2align 4\n"
        FUNCTION(data_amid)
        "  lea 1f(%rip), %rdx\n"
        "  mov (%rdx, %rdi, 8), %rax\n"
        "  jmp 2f\n"
        "1: .quad 0x0706050403020100, 0xffffffffffffffff, 0x60ea9b67d40e1e06, 17\n"
        "2: lea 1(%rax), %rax\n"
        "  ret\n"
        END(data_amid)
        ".fill 5, 1, 0xcc\n"
        /* The data here are complete instructions, with returns and jumps that never execute: five
         * no-ops, ret, nop, nop, and so on. */
        FUNCTION(data_like_code)
        "  lea 1f(%rip), %rdx\n"
        "  mov (%rdx, %rdi, 8), %rax\n"
        "  jmp 2f\n"
        "  .balign 8, 0x90\n"
        "1: .quad 0x9090c39090909090, 0x90900000000000e9, 0xc3c3c3c3c3c3c3c3, 0x909090909090feeb\n"
        "2: ret\n"
        END(data_like_code)
        ".fill 5, 1, 0xcc\n"
        /* After the last instruction, but still within the symbol's size. */
        FUNCTION(data_after)
        "  lea 1f(%rip), %rdx\n"
        "  mov (%rdx, %rdi, 8), %rax\n"
        "  ret\n"
        "1: .quad 0x9090909090909090, 0xc3909090909090c3, 0xcccccccccccccccc, 0x00401f0f00401f0f\n"
        END(data_after)
        ".fill 5, 1, 0xcc\n"
        /* Found through the return address of a call. */
        FUNCTION(data_called_over)
        "  call 2f\n"
        "  .cfi_def_cfa_offset 16\n"
        "1: .quad 0x9090c39090909090, 0xc3c3c3c3c3c3c3c3\n"
        "2: pop %rdx\n"
        "  .cfi_def_cfa_offset 8\n"
        "  mov (%rdx, %rdi, 8), %rax\n"
        "  ret\n"
        END(data_called_over)
        ".fill 5, 1, 0xcc\n");

static int check_data_amid(struct worker *worker, uint64_t x)
{
    (void)worker;
    static const uint64_t data[] = {0x0706050403020100, 0xffffffffffffffff, 0x60ea9b67d40e1e06, 17};
    return data_amid(x & 3) == data[x & 3] + 1;
}

static int check_data_like_code(struct worker *worker, uint64_t x)
{
    (void)worker;
    static const uint64_t data[] = {0x9090c39090909090, 0x90900000000000e9, 0xc3c3c3c3c3c3c3c3,
                                    0x909090909090feeb};
    return data_like_code(x & 3) == data[x & 3];
}

static int check_data_after(struct worker *worker, uint64_t x)
{
    (void)worker;
    static const uint64_t data[] = {0x9090909090909090, 0xc3909090909090c3, 0xcccccccccccccccc,
                                    0x00401f0f00401f0f};
    return data_after(x & 3) == data[x & 3];
}

static int check_data_called_over(struct worker *worker, uint64_t x)
{
    (void)worker;
    static const uint64_t data[] = {0x9090c39090909090, 0xc3c3c3c3c3c3c3c3};
    return data_called_over(x & 1) == data[x & 1];
}

/* --- cold: parts that the compiler and hand-written assembly put elsewhere --------------------- */

NOINLINE __attribute__((cold)) uint64_t rare(uint64_t x) { return x ^ 0x55; }
NOINLINE uint64_t usual(uint64_t x) { return x + 11; }

/* Leaves by a return in the cold part. */
NOINLINE uint64_t cold_return(uint64_t x)
{
    uint64_t y = usual(x) * 3;
    if (__builtin_expect(x % 7 == 0, 0))
        return rare(y) * 5 + y;
    return y;
}

/* The cold part jumps back. */
NOINLINE uint64_t cold_and_back(uint64_t x)
{
    uint64_t y = x + 2;
    for (int i = 0; i < 3; i++) {
        if (__builtin_expect((x + (uint64_t)i) % 5 == 0, 0))
            y += rare(x);
        y = usual(y);
    }
    return y * 2;
}

/* Enters its cold part by conditional and by plain jumps, at two frame heights each, and leaves it
 * by a return, by a tail call, and back to the middle and to the bytes of the exit. */
uint64_t cold_by_hand(uint64_t x, uint64_t n);
__asm__(".text\n.p2align 4\n"
        FUNCTION(cold_by_hand)
        "  test %rsi, %rsi\n"
        "  je .Lcold_tail\n"
        "  push %rdi\n"
        "  .cfi_def_cfa_offset 16\n"
        "  cmp $2, %rsi\n"
        "  jb .Lcold_return\n"
        "  je .Lcold_back\n"
        "  inc %rdi\n"
        "  jmp .Lcold_leave\n"
        ".Lwarm:\n"
        "  mov %rdi, %rax\n"
        ".Lleave_warm:\n"
        "  pop %rdi\n"
        "  .cfi_def_cfa_offset 8\n"
        "  ret\n"
        END(cold_by_hand)
        ".fill 5, 1, 0xcc\n"
        ".section .text.unlikely,\"ax\",@progbits\n"
        ".type cold_by_hand.cold,@function\n"
        "cold_by_hand.cold:\n"
        ".cfi_startproc\n"
        ".Lcold_tail:\n"
        "  add $4, %rdi\n"
        "  jmp usual\n"
        ".cfi_def_cfa_offset 16\n"
        ".Lcold_return:\n"
        "  lea 40(%rdi), %rax\n"
        "  pop %rdi\n"
        "  .cfi_def_cfa_offset 8\n"
        "  ret\n"
        "  .cfi_def_cfa_offset 16\n"
        ".Lcold_back:\n"
        "  add $50, %rdi\n"
        "  jmp .Lwarm\n"
        ".Lcold_leave:\n"
        "  lea 60(%rdi), %rax\n"
        "  jmp .Lleave_warm\n"
        ".cfi_endproc\n"
        ".size cold_by_hand.cold,.-cold_by_hand.cold\n"
        ".text\n");

static int check_cold_return(struct worker *worker, uint64_t x)
{
    (void)worker;
    uint64_t y = (x + 11) * 3;
    return cold_return(x) == (x % 7 == 0 ? (y ^ 0x55) * 5 + y : y);
}

static int check_cold_and_back(struct worker *worker, uint64_t x)
{
    (void)worker;
    uint64_t y = x + 2;
    for (uint64_t i = 0; i < 3; i++)
        y += ((x + i) % 5 == 0 ? x ^ 0x55 : 0) + 11;
    return cold_and_back(x) == y * 2;
}

static int check_cold_by_hand(struct worker *worker, uint64_t x)
{
    (void)worker;
    static const uint64_t more[] = {15, 40, 50, 61};
    return cold_by_hand(x, x & 3) == x + more[x & 3];
}

/* ------------------------------------------------------------------------------------------------ */

static const struct {
    const char *name;
    struct shape shapes[FUNCTIONS];
} cases[] = {
    {"pc", {{"copy_at_entry", check_copy_at_entry}, {"copy_at_exit", check_copy_at_exit},
            {"cpuid_at_both", check_cpuid_at_both}, {"copy_then_jump", check_copy_then_jump}}},
    {"branch", {{"loop_head", check_loop_head}, {"loop_to_entry", check_loop_to_entry},
                {"shared_body", check_shared_body},
                {"enters_shared_body", check_enters_shared_body}}},
    {"table", {{"table_to_head", check_table_to_head}, {"table_to_exit", check_table_to_exit}}},
    {"data", {{"data_amid", check_data_amid}, {"data_like_code", check_data_like_code},
              {"data_after", check_data_after}, {"data_called_over", check_data_called_over}}},
    {"cold", {{"cold_return", check_cold_return}, {"cold_and_back", check_cold_and_back},
              {"cold_by_hand", check_cold_by_hand}}},
};

static const struct shape *shapes;
static struct line *lines;
static uint64_t rounds;
static atomic_int stop;

static void *thread(void *argument)
{
    int self = (int)(intptr_t)argument;
    struct line *line = &lines[1 + self];
    struct worker *worker = malloc(sizeof *worker);
    memset(worker->to, 0x5a, sizeof worker->to);
    for (int i = 0; i < BYTES; i++) {
        worker->from[0][i] = (uint8_t)(i * 7 + self);
        worker->from[1][i] = (uint8_t)(i * 5 + 128 + (i >> 8));
    }
    uint64_t x = 12345 + (uint64_t)self;
    for (uint64_t round = 0; round != rounds || rounds == 0; round++) {
        if (atomic_load(&stop))
            break;
        while (atomic_load(&lines->numbers[0]) && !atomic_load(&stop)) {
            atomic_store(&line->numbers[HELD], 1);
            usleep(200);
        }
        atomic_store(&line->numbers[HELD], 0);
        for (int i = 0; i < FUNCTIONS && shapes[i].name; i++) {
            atomic_store(&line->numbers[i], atomic_load(&line->numbers[i]) + 1);
            if (!shapes[i].check(worker, x)) {
                printf("wrong %s %llu\n", shapes[i].name, (unsigned long long)round);
                fflush(stdout);
                _exit(1);
            }
        }
        x = (x * 6364136223846793005u + 1442695040888963407u) >> 9;
    }
    free(worker);
    return NULL;
}

static void on_term(int signal)
{
    (void)signal;
    atomic_store(&stop, 1);
}

int main(int argc, char **argv)
{
    int threads = argc > 3 ? atoi(argv[2]) : 0;
    for (size_t i = 0; argc > 3 && i < sizeof cases / sizeof *cases; i++)
        if (strcmp(argv[1], cases[i].name) == 0)
            shapes = cases[i].shapes;
    if (shapes == NULL || threads < 1 || threads > MOST)
        return 2;
    rounds = strtoull(argv[3], NULL, 10);
    int flags = MAP_SHARED | MAP_ANONYMOUS, fd = -1;
    if (argc > 4) {
        fd = open(argv[4], O_RDWR | O_CREAT, 0666);
        if (fd < 0 || ftruncate(fd, sizeof *lines * (MOST + 1)) != 0)
            return 2;
        flags = MAP_SHARED;
    }
    lines = mmap(NULL, sizeof *lines * (MOST + 1), PROT_READ | PROT_WRITE, flags, fd, 0);
    if (lines == MAP_FAILED)
        return 2;
    signal(SIGTERM, on_term);
    pthread_t handles[MOST];
    for (intptr_t i = 0; i < threads; i++)
        pthread_create(&handles[i], NULL, thread, (void *)i);
    for (int i = 0; i < threads; i++)
        while (atomic_load(&lines[1 + i].numbers[0]) == 0)
            usleep(100);
    puts("ready");
    fflush(stdout);
    for (int i = 0; i < threads; i++)
        pthread_join(handles[i], NULL);
    printf("ok calls");
    for (int f = 0; f < FUNCTIONS && shapes[f].name; f++) {
        uint64_t calls = 0;
        for (int i = 0; i < threads; i++)
            calls += atomic_load(&lines[1 + i].numbers[f]);
        printf(" %s %llu", shapes[f].name, (unsigned long long)calls);
    }
    putchar('\n');
    return 0;
}
