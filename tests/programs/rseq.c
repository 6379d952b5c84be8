/* Restartable sequences (rseq(2)): threads count per processor without any lock. An increment that
 * is interrupted between load and store, and not restarted, is lost or counted twice.
 *
 *     rseq [ROUNDS]
 *
 * `count_first` begins with its sequence, `count_last` ends with it, and `count_within` has room
 * for probes before and after it. Prints `ready`, counts until SIGUSR1, or ROUNDS times in each
 * thread, and prints `calls NAME N`; then `ok` if the sums over all processors are the numbers of
 * calls, or `wrong NAME SUM`. Without ROUNDS it ends on SIGTERM. */
#include "gate.h"
#include <stdatomic.h>
#include <sys/rseq.h>

#define PROCESSORS 1024
#define THREADS 3
/* Additions between load and store, which extend the time for interruptions. */
#define DELAY "40"

struct cell {
    uint64_t count;
    char pad[56];
};

/* `count_...(struct cell *cells, struct rseq *area)`. The caller has stored the descriptor's
 * address in the area for `count_first`, which has no instruction before its sequence. */
#define DESCRIPTOR(name)                                                                           \
    ".pushsection __rseq_cs, \"aw\"\n.p2align 5\n.globl " #name "_cs\n" #name "_cs:\n"             \
    ".long 0, 0\n.quad 1f, 2f - 1f, 4f\n.popsection\n"
#define SEQUENCE                                                                                   \
    "1: movl 4(%rsi), %eax\n"                                                                      \
    "shlq $6, %rax\n"                                                                              \
    "movq (%rdi, %rax), %rdx\n"                                                                    \
    "movl $" DELAY ", %ecx\n"                                                                      \
    "3: addl $-1, %ecx\n"                                                                          \
    "jnz 3b\n"                                                                                     \
    "addq $1, %rdx\n"                                                                              \
    "movq %rdx, (%rdi, %rax)\n"                                                                    \
    "2: "
#define ABORT                                                                                      \
    ".byte 0x0f, 0xb9, 0x3d\n.long 0x53053053\n"                                                   \
    "4: "
#define ARM(name) "leaq " #name "_cs(%rip), %rax\nmovq %rax, 8(%rsi)\n"
#define FUNCTION(name, body)                                                                       \
    __asm__(DESCRIPTOR(name) ".text\n.p2align 4\n.globl " #name "\n.type " #name ", @function\n"   \
            #name ":\n.cfi_startproc\n" body "\n.cfi_endproc\n.size " #name ", . - " #name "\n"    \
            ".p2align 4\n");                                                                       \
    void name(struct cell *cells, struct rseq *area)

FUNCTION(count_within, "nopl 0(%rax, %rax)\n5: " ARM(count_within) SEQUENCE "nopl 0(%rax, %rax)\nret\n"
                       ABORT "jmp 5b");
FUNCTION(count_first, SEQUENCE "nopl 0(%rax, %rax)\nret\n" ABORT ARM(count_first) "jmp count_first");
FUNCTION(count_last, "nopl 0(%rax, %rax)\n5: " ARM(count_last) SEQUENCE "ret\n" ABORT "jmp 5b");
extern char count_first_cs[];

static struct kind {
    const char *name;
    void (*count)(struct cell *, struct rseq *);
    struct cell *cells;
    _Atomic uint64_t calls;
} kinds[] = {{"count_within", count_within, NULL, 0},
             {"count_first", count_first, NULL, 0},
             {"count_last", count_last, NULL, 0}};
#define KINDS (sizeof kinds / sizeof *kinds)

static atomic_int stop, running;
static uint64_t most = UINT64_MAX;

static void on_signal(int signal)
{
    (void)signal;
    atomic_store(&stop, 1);
}

static void *thread(void *unused)
{
    (void)unused;
    struct rseq *area = (struct rseq *)((char *)__builtin_thread_pointer() + __rseq_offset);
    uint64_t calls = 0;
    atomic_fetch_add(&running, 1);
    while (calls < most && !atomic_load_explicit(&stop, memory_order_relaxed)) {
        for (size_t k = 0; k < KINDS; k++) {
            if (kinds[k].count == count_first)
                *(volatile uint64_t *)((char *)area + 8) = (uintptr_t)count_first_cs;
            kinds[k].count(kinds[k].cells, area);
        }
        calls++;
    }
    for (size_t k = 0; k < KINDS; k++)
        atomic_fetch_add(&kinds[k].calls, calls);
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc > 1)
        most = strtoull(argv[1], NULL, 10);
    if (__rseq_size == 0) {
        fprintf(stderr, "no restartable sequences\n");
        return 2;
    }
    signal(SIGUSR1, on_signal);
    for (size_t k = 0; k < KINDS; k++)
        kinds[k].cells = aligned_alloc(64, PROCESSORS * sizeof(struct cell));
    for (size_t k = 0; k < KINDS; k++)
        memset(kinds[k].cells, 0, PROCESSORS * sizeof(struct cell));
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, thread, NULL);
    while (atomic_load(&running) < THREADS)
        usleep(1000);
    say("ready");
    /* The first thread counts, too, so that the processors stay busy. */
    thread(NULL);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (size_t k = 0; k < KINDS; k++) {
        uint64_t sum = 0;
        for (int p = 0; p < PROCESSORS; p++)
            sum += kinds[k].cells[p].count;
        printf("calls %s %llu\n", kinds[k].name, (unsigned long long)kinds[k].calls);
        if (sum != kinds[k].calls) {
            printf("wrong %s %llu\n", kinds[k].name, (unsigned long long)sum);
            fflush(stdout);
            return 1;
        }
    }
    await_nothing_yet();
    say("ok");
    if (argc == 1)
        await_test(SIGTERM);
    return 0;
}
