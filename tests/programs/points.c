/* Instructions whose passes the program counts itself, by the caller of their function.
 *
 * A marker is not code: in a section that is not loaded, it names the next instruction as a point.
 * The program counts right before it. Prints lines `passes POINT:CALLER N` at the end, and `ok`.
 *
 *     points THREADS ROUNDS [BEFORE]
 *
 * With BEFORE it waits after this many of the rounds, prints `waiting`, and continues at SIGUSR1.
 * Lines `later POINT:CALLER N` are the passes since then. */
#define _GNU_SOURCE
#include <alloca.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NOIPA __attribute__((noipa))

enum point { HEAD, ODD, EVEN, OUT, DEEP, FRAME, LARGE, FLAGS, CARRY, ZONE, LAST, POINTS };
enum caller { FIRST, SECOND, THIRD, ITSELF, CALLERS };

static const char *const point_names[POINTS] = {
    "head", "odd", "even", "out", "deep", "frame", "large", "flags", "carry", "zone", "last"};
static const char *const caller_names[CALLERS] = {"first", "second", "third", "recurse"};

static __thread unsigned long passes[POINTS][CALLERS];
static unsigned long all_passes[POINTS][CALLERS], early_passes[POINTS][CALLERS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile unsigned long sink;

#define MARK(name)                                                                                 \
    asm volatile(".Lmark%=:\n"                                                                     \
                 ".pushsection points, \"\", @progbits\n"                                          \
                 ".quad .Lmark%=, %c0\n"                                                           \
                 ".popsection" ::"i"(name)                                                         \
                 : "memory")
#define POINT(name, caller)                                                                        \
    do {                                                                                           \
        passes[name][caller]++;                                                                    \
        MARK(name);                                                                                \
    } while (0)

NOIPA unsigned long branches(enum caller caller, unsigned long n)
{
    unsigned long sum = 0;
    for (unsigned long i = 0; i < n; i++) {
        POINT(HEAD, caller);
        if (i % 2 == 1) {
            POINT(ODD, caller);
            sum += sink;
        } else {
            POINT(EVEN, caller);
            sum ^= i;
        }
    }
    POINT(OUT, caller);
    return sum + sink;
}

NOIPA unsigned long recurse(enum caller caller, unsigned long n)
{
    POINT(DEEP, caller);
    unsigned long below = n == 0 ? sink : recurse(ITSELF, n - 1);
    asm volatile("" : "+r"(below)); /* no loop instead of calls */
    return below + n;
}

/* Its frame has a different size at each call, and is relative to the frame pointer. */
NOIPA unsigned long dynamic(enum caller caller, unsigned long n)
{
    char *room = alloca(n * 24 + 1);
    memset(room, (int)n, n * 24 + 1);
    POINT(FRAME, caller);
    return (unsigned long)room[n] + sink;
}

NOIPA unsigned long large(enum caller caller, unsigned long n)
{
    volatile char room[20000];
    room[n] = (char)n;
    POINT(LARGE, caller);
    return (unsigned long)room[n];
}

/* A leaf that keeps data below the stack pointer, up to the end of the red zone, and live flags at
 * its points. */
unsigned long leaf(unsigned long a, unsigned long b);
#define MARK_IN_ASM(label, number)                                                                 \
    ".pushsection points, \"\", @progbits\n"                                                       \
    ".quad " label ", " number "\n"                                                                \
    ".popsection\n"
asm(".text\n"
    ".globl leaf\n"
    ".type leaf, @function\n"
    "leaf:\n"
    ".cfi_startproc\n"
    "    mov %rdi, -8(%rsp)\n"
    "    mov %rsi, -128(%rsp)\n"
    "    cmp %rsi, %rdi\n"
    ".Lflags:\n"
    "    jb 1f\n"
    "    movq $0, -64(%rsp)\n"
    "    jmp 2f\n"
    "1:  movq $1, -64(%rsp)\n"
    "2:  mov -8(%rsp), %rax\n"
    "    add -128(%rsp), %rax\n"
    ".Lcarry:\n"
    "    adc $0, %rax\n"
    "    std\n"
    ".Lzone:\n"
    "    pushfq\n"
    ".cfi_adjust_cfa_offset 8\n"
    "    cld\n"
    "    pop %rdx\n"
    ".cfi_adjust_cfa_offset -8\n"
    "    and $0x400, %edx\n"
    "    add %rdx, %rax\n"
    "    shl $1, %rax\n"
    "    add -64(%rsp), %rax\n"
    ".Llast:\n"
    "    ret\n"
    ".cfi_endproc\n"
    ".size leaf, . - leaf\n" MARK_IN_ASM(".Lflags", "7") MARK_IN_ASM(".Lcarry", "8")
        MARK_IN_ASM(".Lzone", "9") MARK_IN_ASM(".Llast", "10"));
_Static_assert(FLAGS == 7 && CARRY == 8 && ZONE == 9 && LAST == 10, "as the assembly has them");

static inline __attribute__((always_inline)) void check_leaf(enum caller caller, unsigned long a, unsigned long b)
{
    unsigned long expected = ((a + b + (a + b < a) + 0x400) << 1) + (a < b);
    for (enum point point = FLAGS; point <= LAST; point++)
        passes[point][caller]++;
    /* `pushfq` overwrites the highest word of the red zone, which has been read by then. */
    unsigned long found = leaf(a, b);
    if (found != expected) {
        printf("leaf(%lx, %lx) is %lx, not %lx\n", a, b, found, expected);
        exit(1);
    }
}

NOIPA unsigned long first(unsigned long n)
{
    return branches(FIRST, n) + recurse(FIRST, n) + dynamic(FIRST, n) + large(FIRST, n) + 1;
}

NOIPA unsigned long second(unsigned long n)
{
    return branches(SECOND, n + 3) + recurse(SECOND, 2) + dynamic(SECOND, 2 * n) + 2;
}

NOIPA unsigned long third(unsigned long n)
{
    check_leaf(THIRD, n, 5);
    check_leaf(THIRD, -1ul, n + 1);
    return branches(THIRD, 1) + large(THIRD, 3 * n) + 3;
}

static volatile int may_go_on = 1;

static void go_on(int signal)
{
    (void)signal;
    may_go_on = 1;
}

static unsigned long rounds, early;
static pthread_barrier_t reached;

static void add_to(unsigned long (*sums)[CALLERS])
{
    pthread_mutex_lock(&lock);
    for (int point = 0; point < POINTS; point++)
        for (int caller = 0; caller < CALLERS; caller++)
            sums[point][caller] += passes[point][caller];
    pthread_mutex_unlock(&lock);
}

static void *work(void *unused)
{
    for (unsigned long i = 0; i < rounds; i++) {
        if (i == early) {
            add_to(early_passes);
            pthread_barrier_wait(&reached);
            while (!may_go_on)
                usleep(1000);
        }
        sink += first(i % 7) + second(i % 5) + third(i % 3);
    }
    add_to(all_passes);
    return unused;
}

int main(int count, char **args)
{
    int threads = atoi(args[1]);
    rounds = strtoul(args[2], NULL, 10);
    early = count > 3 ? strtoul(args[3], NULL, 10) : 0;
    may_go_on = count < 4;
    signal(SIGUSR1, go_on);
    pthread_barrier_init(&reached, NULL, threads + 1);
    pthread_t others[64];
    for (int i = 0; i < threads; i++)
        pthread_create(&others[i], NULL, work, NULL);
    pthread_barrier_wait(&reached);
    if (count > 3) {
        puts("waiting");
        fflush(stdout);
    }
    for (int i = 0; i < threads; i++)
        pthread_join(others[i], NULL);
    for (int point = 0; point < POINTS; point++)
        for (int caller = 0; caller < CALLERS; caller++) {
            unsigned long n = all_passes[point][caller], later = n - early_passes[point][caller];
            if (n != 0)
                printf("passes %s:%s %lu\nlater %s:%s %lu\n", point_names[point],
                       caller_names[caller], n, point_names[point], caller_names[caller], later);
        }
    puts("ok");
    return 0;
}
