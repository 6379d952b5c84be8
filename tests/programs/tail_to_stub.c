/* Functions that leave by a jump to another module's function, through the linker's stub for it. */
#include <stdio.h>
#include <stdlib.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))

static long calls;

/* Like Lua's allocator: with the stack pointer as at the entry. */
NOINLINE void *resize(void *old, size_t size)
{
    calls++;
    if (size == 0) {
        free(old);
        return NULL;
    }
    return realloc(old, size);
}

/* With a frame before the jump. */
NOINLINE void drop(void **from)
{
    void *old = *from;
    *from = resize(NULL, 8);
    free(old);
}

int main(void)
{
    void *held = NULL;
    long drops = 0;
    for (size_t i = 0; i < 300; i++) {
        held = resize(held, i % 7 * 16);
        if (i % 5 == 0) {
            drop(&held);
            drops++;
        }
    }
    free(held);
    printf("calls resize %ld\ncalls drop %ld\n", calls, drops);
    return 0;
}
