/* Calls `work` from code that it writes at run time, as a just-in-time compiler does: without symbols,
 * unwind entries, a file.
 *
 *     framed   has a frame pointer
 *     nested   the same, called by code of the same kind
 *     bare     has none, and leaves the one of its caller in rbp
 *     zeroed   has 0 in rbp
 *     stale    has a frame pointer, and an old return address among its variables
 *
 * Prints for each how often it was called, and `calls work N`. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))

static long calls;

typedef long (*unary)(long);

NOINLINE long work(long n)
{
    calls++;
    return n * 3 + 1;
}

static uint8_t *next;

/* `code` with the address of `callee` after its bytes 48 b8, a `mov rax, imm64`. */
static unary generate(const uint8_t *code, size_t size, unary callee)
{
    uint8_t *start = next;
    memcpy(start, code, size);
    uint8_t *at = memmem(start, size, "\x48\xb8", 2);
    memcpy(at + 2, &callee, sizeof callee);
    next += (size + 15) & -16;
    return (unary)(uintptr_t)start;
}

#define MOV_RAX 0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0
#define CALL_RAX 0xff, 0xd0
#define PUSH_RBP 0x55
#define MOV_RBP_RSP 0x48, 0x89, 0xe5
#define PUSH_0 0x6a, 0
#define LEAVE 0xc9
#define RET 0xc3

static const uint8_t framed[] = {
    PUSH_RBP, MOV_RBP_RSP, PUSH_0, PUSH_0, PUSH_0, PUSH_0, MOV_RAX, CALL_RAX, LEAVE, RET,
};

static const uint8_t bare[] = {
    0x48, 0x83, 0xec, 0x08 /* sub rsp, 8 */, MOV_RAX, CALL_RAX, 0x48, 0x83, 0xc4, 0x08, RET,
};

static const uint8_t zeroed[] = {
    PUSH_RBP, 0x31, 0xed /* xor ebp, ebp */, MOV_RAX, CALL_RAX, 0x5d /* pop rbp */, RET,
};

/* Its own return address stands at [rsp], too. */
static const uint8_t stale[] = {
    PUSH_RBP, MOV_RBP_RSP, PUSH_0, 0xff, 0x75, 0x08 /* push [rbp + 8] */, MOV_RAX, CALL_RAX, LEAVE, RET,
};

/* Has a frame pointer itself, see the flags it is compiled with. */
NOINLINE long enter(unary f, long n) { return f(n) + 1; }

int main(void)
{
    const size_t size = 4096;
    next = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint8_t *code = next;
#define GENERATE(name, callee) generate(name, sizeof name, callee)
    unary inner = GENERATE(framed, work);
    const struct {
        const char *name;
        unary code;
        long times;
    } all[] = {
        {"framed", inner, 500},
        {"nested", GENERATE(framed, inner), 400},
        {"bare", GENERATE(bare, work), 300},
        {"zeroed", GENERATE(zeroed, work), 200},
        {"stale", GENERATE(stale, work), 100},
    };
    if (code == MAP_FAILED || mprotect(code, size, PROT_READ | PROT_EXEC) != 0)
        return 2;
    long sum = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        for (long n = 0; n < all[i].times; n++)
            sum += enter(all[i].code, n);
        printf("%s %ld\n", all[i].name, all[i].times);
    }
    printf("calls work %ld\nsum %ld\n", calls, sum);
    return 0;
}
