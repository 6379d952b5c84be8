/* Calls `work` from code that it writes at run time. Its frames contain addresses of unreadable
 * code: of the vsyscall page, and after a call in code that has since been unmapped. Prints
 * `calls work N`. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))

static long calls;

NOINLINE long work(long n)
{
    calls++;
    return n * 3 + 1;
}

static const uint8_t code[] = {
    0x55,                                         /* push rbp */
    0x48, 0x89, 0xe5,                             /* mov rbp, rsp */
    0x48, 0x83, 0xec, 0x20,                       /* sub rsp, 32 */
    0x48, 0x89, 0x74, 0x24, 0x08,                 /* mov [rsp + 8], rsi */
    0x48, 0xc7, 0x04, 0x24, 0, 0, 0, 0,           /* mov qword ptr [rsp], 0 */
    0x48, 0xc7, 0x44, 0x24, 0x10, 0, 0, 0, 0,     /* mov qword ptr [rsp + 16], 0 */
    0x48, 0xc7, 0x44, 0x24, 0x18, 0, 0, 0, 0,     /* mov qword ptr [rsp + 24], 0 */
    0x48, 0xb8, 0,    0,    0, 0, 0, 0, 0, 0,     /* mov rax, work */
    0xff, 0xd0,                                   /* call rax */
    0xc9, 0xc3,                                   /* leave; ret */
};
enum { TO_WORK = sizeof code - 12, AFTER_CALL = sizeof code - 2 };

typedef long (*made)(long, uint64_t);

static made make(uint8_t *page)
{
    uint64_t callee = (uint64_t)(uintptr_t)work;
    memcpy(page, code, sizeof code);
    memcpy(page + TO_WORK, &callee, sizeof callee);
    return (made)(uintptr_t)page;
}

static uint8_t *executable(void)
{
    return mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

int main(void)
{
    /* Apart from each other, so that each has its own mapping. */
    uint8_t *gone = executable(), *between = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint8_t *first = executable(), *second = first == NULL ? NULL : executable();
    long sum = between != NULL;
    made early = make(gone), late = make(first);
    made vsyscall = make(second + 256);
    sum += early(1, 0);
    munmap(gone, 4096);
    for (long i = 0; i < 100; i++) {
        sum += late(i, (uint64_t)(uintptr_t)gone + AFTER_CALL);
        sum += vsyscall(i, (uint64_t)-10485000);
    }
    printf("sum %ld\ncalls work %ld\n", sum & 0xffff, calls);
    return 0;
}
