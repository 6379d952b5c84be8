/* Functions too small for a jump. Each is directly followed by another one whose first bytes form
 * the end of the displacement of a jump that begins in the small one: `_up` leads to 1.7 GiB above,
 * `_down` to 1.8 GiB below.
 *
 *     tiny_function [MODE [two]]
 *
 *     (none)    calls each, from one thread
 *     wait      prints `ready`, awaits SIGUSR1, calls each from several threads, prints `ok`,
 *               awaits SIGTERM
 *     full      as wait, with all possible targets of those jumps mapped; another SIGUSR1 before
 *               the first, answered by `released`, unmaps them
 *     fork      as wait, and a child makes the calls
 *     busy      prints `ready`, calls them until SIGUSR1, prints `ok`, awaits SIGTERM
 *
 * With `two`, the functions are two of which the first's jump depends on the second's bytes. Checks
 * the results, including those of the functions after them. Prints `calls NAME N` for each small
 * one. With -DLIBRARY it is a shared library for tiny_function_main.c. */
#include "gate.h"
#include <stdatomic.h>
#include <sys/wait.h>

#ifdef LIBRARY
#define MAIN tiny_main
int tiny_main(int argc, char **argv);
#else
#define MAIN main
#endif

__asm__(".text\n"
        ".macro function name\n"
        "  .globl \\name\n"
        "  .hidden \\name\n"
        "  .type \\name, @function\n"
        "\\name:\n"
        "  .cfi_startproc\n"
        ".endm\n"
        ".macro end name\n"
        "  .cfi_endproc\n"
        "  .size \\name, . - \\name\n"
        ".endm\n"

        /* x + 1; its byte number `at`, counted from 1, is 0x6b or 0x89, which is beyond the
         * kernel's place for the heap. */
        ".macro beside name way at\n"
        "  function beside_\\name\\()_\\way\n"
        "  .if \\at == 2\n"
        "  cltd\n"
        "  .elseif \\at == 3\n"
        "  mov %edi, %eax\n"
        "  .elseif \\at == 4\n"
        "  mov %rdi, %rax\n"
        "  .endif\n"
        "  .ifc \\way, up\n"
        "  imul $1, %edi, %eax\n" /* 6b c7 01 */
        "  .else\n"
        "  mov %edi, %eax\n" /* 89 f8 */
        "  .endif\n"
        "  inc %rax\n"
        "  ret\n"
        "  end beside_\\name\\()_\\way\n"
        ".endm\n"

        ".macro tiny_way name way len count byte insn:vararg\n"
        "  function \\name\\()_\\way\n"
        "  \\insn\n"
        "  ret\n"
        "  end \\name\\()_\\way\n"
        "  .rept \\count\n"
        "  .byte \\byte\n"
        "  .endr\n"
        "  beside \\name, \\way, (5-\\len-\\count)\n"
        ".endm\n"
        /* `len` bytes, of which the last is a return, and `count` bytes in between. */
        ".macro tiny name len count byte insn:vararg\n"
        "  tiny_way \\name, up, \\len, \\count, \\byte, \\insn\n"
        "  tiny_way \\name, down, \\len, \\count, \\byte, \\insn\n"
        ".endm\n"

        ".p2align 4\n"
        "tiny one, 1, 0, 0\n"
        "tiny two, 2, 0, 0, cwtl\n"
        "tiny rep, 2, 0, 0, rep\n"
        "tiny three, 3, 0, 0, neg %eax\n"
        "tiny four, 4, 0, 0, neg %rax\n"
        "tiny one_nops, 1, 2, 0x90\n"
        "tiny one_stops, 1, 1, 0xcc\n"
        "tiny two_stops, 2, 2, 0xcc, cwtl\n"
        "tiny three_nop, 3, 1, 0x90, neg %eax\n"
        /* The jump begins in one page and ends in the next. */
        ".p2align 12\n"
        ".skip 4094, 0xcc\n"
        "tiny_way across, up, 2, 0, 0, cwtl\n"
        ".p2align 12, 0xcc\n"
        ".skip 4094, 0xcc\n"
        "tiny_way across, down, 2, 0, 0, cwtl\n"
        /* Two functions, of which the first depends on bytes of the second. */
        ".p2align 4, 0xcc\n"
        "function first_of_two\n"
        "  neg %rax\n"
        "  ret\n"
        "end first_of_two\n"
        "function second_of_two\n"
        "  imul $-1, %edi, %eax\n"
        "  ret\n"
        "end second_of_two\n"
        "beside two_of, up, 1\n"

        /* The last byte of the file that is mapped executable. */
        ".section .last, \"ax\", @progbits\n"
        ".p2align 12\n"
        ".skip 4095, 0xcc\n"
        "function at_end\n"
        "  ret\n"
        "end at_end\n"
        ".text\n"

        /* Calls a function of one argument; a small one leaves the argument as the result. */
        ".p2align 4, 0xcc\n"
        "function through\n"
        "  sub $8, %rsp\n"
        "  .cfi_adjust_cfa_offset 8\n"
        "  mov %rdi, %rdx\n"
        "  mov %rsi, %rdi\n"
        "  mov %rsi, %rax\n"
        "  call *%rdx\n"
        "  add $8, %rsp\n"
        "  .cfi_adjust_cfa_offset -8\n"
        "  ret\n"
        "end through\n");

typedef long function(long);
long through(function *call, long x);

static long same(long x) { return x; }
static long low_half(long x) { return (unsigned)(int)(short)x; }
static long minus_int(long x) { return -(unsigned)x; }
static long minus(long x) { return -x; }

#define WAYS(name, expected) ROW(name##_up, expected) ROW(name##_down, expected)
#define TINY \
    WAYS(one, same) WAYS(two, low_half) WAYS(rep, same) WAYS(three, minus_int) WAYS(four, minus) \
    WAYS(one_nops, same) WAYS(one_stops, same) WAYS(two_stops, low_half) \
    WAYS(three_nop, minus_int) WAYS(across, low_half)

#define ROW(name, expected) function name, beside_##name;
TINY
#undef ROW
function first_of_two, second_of_two, beside_two_of_up, at_end;

struct row {
    const char *name;
    function *call, *expected, *beside;
};

static const struct row singles[] = {
#define ROW(name, expected) {#name, name, expected, beside_##name},
    TINY
#undef ROW
    {"at_end", at_end, same, beside_one_up},
};
static const struct row two[] = {
    {"first_of_two", first_of_two, minus, beside_two_of_up},
    {"second_of_two", second_of_two, minus_int, beside_two_of_up},
};
static const struct row *rows = singles;
static size_t count = sizeof singles / sizeof *singles;

#define THREADS 4
#define ROUNDS 500

static atomic_int stop, endless, begun;

/* Calls all functions. Returns the number of calls of each, or -1 if a result was wrong. */
static void *calls(void *unused)
{
    (void)unused;
    atomic_fetch_add(&begun, 1);
    long round = 0;
    for (; atomic_load(&endless) ? !atomic_load(&stop) : round < ROUNDS; round++)
        for (size_t i = 0; i < count; i++) {
            long x = 1 + round % ROUNDS * 977;
            long got = through(rows[i].call, x), beside = through(rows[i].beside, x);
            if (got != rows[i].expected(x) || beside != x + 1) {
                printf("wrong %s(%ld): %lx, beside it %lx\n", rows[i].name, x, got, beside);
                return (void *)-1L;
            }
        }
    return (void *)round;
}

static int finish(long made)
{
    for (size_t i = 0; made >= 0 && i < count; i++)
        printf("calls %s %ld\n", rows[i].name, made);
    say(made < 0 ? "wrong" : "ok");
    return made < 0;
}

static void begin(pthread_t *threads)
{
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, calls, NULL);
    while (atomic_load(&begun) < THREADS)
        usleep(100);
}

static long join(pthread_t *threads)
{
    long made = 0;
    for (int i = 0; i < THREADS; i++) {
        void *result;
        pthread_join(threads[i], &result);
        made = made < 0 || (long)result < 0 ? -1 : made + (long)result;
    }
    return made;
}

/* A range of addresses, and the formerly free parts of it that are mapped. */
struct range {
    uintptr_t from;
    char filled[4096];
};

#define PART (64ul << 10)

/* Maps the free parts of the range at `from`, rounded down to a multiple of 64 KiB. */
static void fill(struct range *range, uintptr_t from)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
    range->from = from & -PART;
    for (size_t i = 0; i < sizeof range->filled; i++) {
        void *wanted = (void *)(range->from + i * PART);
        range->filled[i] = mmap(wanted, PART, PROT_NONE, flags, -1, 0) == wanted;
    }
}

static void empty(const struct range *range)
{
    for (size_t i = 0; i < sizeof range->filled; i++)
        if (range->filled[i])
            munmap((void *)(range->from + i * PART), PART);
}

static int forked(void)
{
    pid_t child = fork();
    if (child == 0) {
        long made = (long)calls(NULL);
        _exit(made == ROUNDS ? 0 : 1);
    }
    int status = 1;
    waitpid(child, &status, 0);
    return finish(status == 0 ? 0 : -1);
}

int MAIN(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    pthread_t threads[THREADS];
    if (*mode == 0)
        return finish((long)calls(NULL));
    if (argc > 2) {
        rows = two;
        count = sizeof two / sizeof *two;
    }
    await_nothing_yet();
    if (strcmp(mode, "busy") == 0) {
        endless = 1;
        begin(threads);
        say("ready");
        await_test(SIGUSR1);
        stop = 1;
        int result = finish(join(threads));
        await_test(SIGTERM);
        return result;
    }
    if (strcmp(mode, "full") == 0) {
        static struct range above, below;
        fill(&above, (uintptr_t)one_up + 0x60000000);
        fill(&below, (uintptr_t)one_up - 0x7f000000);
        say("ready");
        await_test(SIGUSR1);
        empty(&above);
        empty(&below);
        say("released");
    } else {
        say("ready");
    }
    await_test(SIGUSR1);
    int result;
    if (strcmp(mode, "fork") == 0) {
        result = forked();
    } else {
        begin(threads);
        result = finish(join(threads));
    }
    await_test(SIGTERM);
    return result;
}
