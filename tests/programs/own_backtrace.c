/* Inspects its own stack with backtrace(3), in probed functions and in their callees. Prints for
 * each frame its file and the offset from the file's start. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <execinfo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))
enum { MOST = 64 };

static long calls[8];
enum { LOOKS, CALLED, TINY, BOTH_WAYS, COMPARES, COUNTED };
static const char *const names[COUNTED] = {"looks", "called", "tiny", "both_ways", "compares"};

static void show(const char *where)
{
    void *frames[MOST];
    int found = backtrace(frames, MOST);
    printf("%s:", where);
    /* The first frame is this function, whose layout depends on the compiler. */
    for (int i = 0; i < found; i++) {
        Dl_info info;
        if (!dladdr(frames[i], &info)) {
            printf(" nowhere");
            continue;
        }
        const char *slash = strrchr(info.dli_fname, '/');
        printf(" %s+%lx", slash ? slash + 1 : info.dli_fname,
               (unsigned long)((char *)frames[i] - (char *)info.dli_fbase));
    }
    putchar('\n');
}

/* Its own return address, and one that the unwinder finds a frame further out. */
NOINLINE long called(long x)
{
    calls[CALLED]++;
    show("called");
    return x + 1;
}

NOINLINE long looks(long x)
{
    calls[LOOKS]++;
    show("looks");
    long sum = called(x) + 1;
    show("looks again");
    return sum;
}

/* The call is in the bytes that a patch overwrites, at the entry and before the exit. */
long tiny(long);
__asm__(".text\n"
        ".globl tiny\n"
        ".type tiny, @function\n"
        "tiny:\n"
        ".cfi_startproc\n"
        "push %rbx\n"
        ".cfi_adjust_cfa_offset 8\n"
        ".cfi_rel_offset rbx, 0\n"
        "call called\n"
        "pop %rbx\n"
        ".cfi_adjust_cfa_offset -8\n"
        ".cfi_restore rbx\n"
        "ret\n"
        ".cfi_endproc\n"
        ".size tiny, . - tiny\n"
        ".skip 16, 0x90\n");

/* Inspects the stack while a library calls it. */
NOINLINE int compares(const void *a, const void *b)
{
    if (calls[COMPARES]++ == 1)
        show("compares");
    return *(const int *)a - *(const int *)b;
}

NOINLINE long both_ways(long x)
{
    calls[BOTH_WAYS]++;
    if (x == 0)
        return looks(x) + 1;
    return both_ways(x - 1) + tiny(x);
}

int main(void)
{
    void *first[1];
    backtrace(first, 1); /* loads the unwinder */
    long sum = 0;
    for (long i = 0; i < 4; i++) {
        sum += looks(i) + tiny(i) + both_ways(i);
        calls[TINY] += 1 + i;
    }
    int numbers[] = {3, 1, 2, 5};
    qsort(numbers, 4, sizeof *numbers, compares);
    printf("sum %ld\n", sum);
    for (int i = 0; i < COUNTED; i++)
        printf("calls %s %ld\n", names[i], calls[i]);
    return 0;
}
