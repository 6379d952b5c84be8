/* Calls `work` from code that it writes at run time, as a just-in-time compiler does: without
 * symbols, unwind entries, and a file.
 *
 *     framed   has a frame pointer
 *     nested   the same, called by code of the same kind
 *     bare     has none, and leaves its caller's in rbp
 *     zeroed   has 0 in rbp
 *     stale    has a frame pointer, and an old return address among its variables
 *
 * Prints the number of calls of each, and `calls work N`. */
#include "generated.h"

static long calls;

NOINLINE long work(long n)
{
    calls++;
    return n * 3 + 1;
}

static const uint8_t bare[] = {
    0x48, 0x83, 0xec, 0x08 /* sub rsp, 8 */, MOV_RAX, CALL_RAX, 0x48, 0x83, 0xc4, 0x08, RET,
};

static const uint8_t zeroed[] = {
    PUSH_RBP, 0x31, 0xed /* xor ebp, ebp */, MOV_RAX, CALL_RAX, 0x5d /* pop rbp */, RET,
};

/* Its own return address is also at [rsp]. */
static const uint8_t stale[] = {
    PUSH_RBP, MOV_RBP_RSP, PUSH_0, 0xff, 0x75, 0x08 /* push [rbp + 8] */, MOV_RAX, CALL_RAX, LEAVE, RET,
};

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
