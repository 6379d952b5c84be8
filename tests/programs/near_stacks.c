/* Two threads on small stacks, each in a loop that calls a function on one path only.
 *
 * usage: near_stacks DISTANCE ROUNDS
 * DISTANCE is that from the one stack's top to the other's, in bytes. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

__attribute__((noipa)) static unsigned nothing(unsigned x) { return x + 1; }

#define STEP(k)                                                                                   \
    if (x >> k & 1) {                                                                             \
        y = y * 3 + k;                                                                            \
        y ^= z;                                                                                   \
    } else {                                                                                      \
        y ^= y >> 3;                                                                              \
        y += z + k;                                                                               \
    }
#define FUNCTION(name)                                                                            \
    __attribute__((noipa)) unsigned name(unsigned x) {                                            \
        unsigned y = x, z = nothing(x);                                                           \
        STEP(0) STEP(1) STEP(2) STEP(3) STEP(4)                                                   \
        z += nothing(y);                                                                          \
        STEP(5) STEP(6) STEP(7) STEP(8) STEP(9)                                                   \
        return y + z;                                                                             \
    }
FUNCTION(one)
FUNCTION(other)

/* Calls `function` with `x` so many times on the stack that ends at `top`. */
void on_stack(void *top, unsigned (*function)(unsigned), unsigned x, unsigned long rounds);
__asm__(".globl on_stack\n"
        "on_stack:\n"
        "    push %rbx\n    push %rbp\n    push %r12\n    push %r13\n    push %r14\n"
        "    mov %rsp, %rbx\n    mov %rsi, %rbp\n    mov %edx, %r12d\n    mov %rcx, %r13\n"
        "    mov %rdi, %rsp\n"
        "1:  mov %r12d, %edi\n    call *%rbp\n    dec %r13\n    jnz 1b\n"
        "    mov %rbx, %rsp\n"
        "    pop %r14\n    pop %r13\n    pop %r12\n    pop %rbp\n    pop %rbx\n    ret\n");

struct work {
    void *top;
    unsigned (*function)(unsigned);
    unsigned x;
    unsigned long rounds;
};

static void *run(void *argument) {
    struct work *work = argument;
    on_stack(work->top, work->function, work->x, work->rounds);
    return NULL;
}

int main(int argc, char **argv) {
    long distance = argc > 1 ? atol(argv[1]) : 65536;
    unsigned long rounds = argc > 2 ? strtoul(argv[2], NULL, 10) : 1000;
    char *memory = mmap(NULL, 1 << 21, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return 1;
    char *middle = memory + (1 << 20);
    struct work works[] = {{middle, one, 0x155, rounds}, {middle + distance, other, 0x2aa, rounds}};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        if (pthread_create(&threads[i], NULL, run, &works[i]) != 0)
            return 1;
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    puts("ok");
    return 0;
}
