/* A thread that can be kept in the middle of a chosen function: in a signal handler that interrupts
 * it, or in a callee.
 *
 *     frames WHERE COUNTER_FILE
 *
 * WHERE is the stack on which the handler waits: `same`, `alternate` (sigaltstack), or `nested`, in
 * a handler on top of another one, on an alternate stack. The functions are called in turn until
 * SIGTERM. Ends with `ok calls` and the calls of each, or `wrong FUNCTION ROUND`. COUNTER_FILE
 * holds lines of eight 64-bit numbers. The first three: the gate (1 holds the thread outside), the
 * function in which to keep the thread (its index, counted from 1), and 1 while it is kept there.
 * The second line: the calls of each function; the last number is 1 while the gate holds the
 * thread. */
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
#define FUNCTIONS 6
#define PAGE 4096

enum { GATE, KEEP, KEPT, HELD = 7 };

static _Atomic uint64_t *numbers;
static uint64_t *page;
static int nested;
static atomic_int stop;

#define FUNCTION(name) ".globl " #name "\n.type " #name ",@function\n" #name ":\n.cfi_startproc\n"
#define END(name) ".cfi_endproc\n.size " #name ",.-" #name "\n.fill 5, 1, 0xcc\n"

/* The loads fault in the middle of the bytes where a jump at the entry or the exit would be. */
uint64_t load_at_entry(const void *from, uint64_t x);
uint64_t load_at_exit(const void *from, uint64_t x);
/* The calls return to the middle or the end of those bytes. */
uint64_t pointer_call_at_entry(const void *callee, uint64_t x);
uint64_t direct_call_at_entry(const void *callee, uint64_t x);
uint64_t call_before_exit(const void *callee, uint64_t x);
uint64_t call_before_padded_exit(const void *callee, uint64_t x);

__asm__(".text\n.p2align 4\n"
        FUNCTION(load_at_entry)
        "  lea (%rsi, %rsi), %rax\n"
        "  add (%rdi), %rax\n"
        "  add $100, %rax\n"
        "  ret\n"
        END(load_at_entry)
        FUNCTION(load_at_exit)
        "  lea 99(%rsi, %rsi), %rax\n"
        "  inc %rax\n"
        "  add (%rdi), %rax\n"
        "  ret\n"
        END(load_at_exit)
        FUNCTION(pointer_call_at_entry)
        "  push %rbx\n"
        "  .cfi_def_cfa_offset 16\n"
        "  call *%rdi\n"
        "  add $100, %rax\n"
        "  lea 0(%rax), %rbx\n"
        "  mov %rbx, %rax\n"
        "  pop %rbx\n"
        "  .cfi_def_cfa_offset 8\n"
        "  ret\n"
        END(pointer_call_at_entry)
        FUNCTION(direct_call_at_entry)
        "  push %rbx\n"
        "  .cfi_def_cfa_offset 16\n"
        "  call callee\n"
        "  add $100, %rax\n"
        "  pop %rbx\n"
        "  .cfi_def_cfa_offset 8\n"
        "  ret\n"
        END(direct_call_at_entry)
        FUNCTION(call_before_exit)
        "  push %rbx\n"
        "  .cfi_def_cfa_offset 16\n"
        "  add $50, %rsi\n"
        "  call *%rdi\n"
        "  pop %rbx\n"
        "  .cfi_def_cfa_offset 8\n"
        "  ret\n"
        /* The next function follows without padding. */
        ".cfi_endproc\n"
        ".size call_before_exit,.-call_before_exit\n"
        FUNCTION(call_before_padded_exit)
        "  push %rbx\n"
        "  .cfi_def_cfa_offset 16\n"
        "  add $50, %rsi\n"
        "  call *%rdi\n"
        "  pop %rbx\n"
        "  .cfi_def_cfa_offset 8\n"
        "  ret\n"
        ".cfi_endproc\n"
        ".size call_before_padded_exit,.-call_before_padded_exit\n"
        "  .fill 8, 1, 0x90\n");

static void wait_here(void)
{
    atomic_store(&numbers[KEPT], 1);
    while (atomic_load(&numbers[KEEP]) != 0 && !atomic_load(&stop))
        usleep(200);
    atomic_store(&numbers[KEPT], 0);
}

NOINLINE __attribute__((used)) uint64_t callee(const void *self, uint64_t x)
{
    (void)self;
    if (*page == 1)
        wait_here();
    return x * 2;
}

static void on_usr1(int signal)
{
    (void)signal;
    wait_here();
}

static void on_segv(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)context;
    if ((uint8_t *)info->si_addr != (uint8_t *)page)
        abort();
    if (nested)
        raise(SIGUSR1);
    else
        wait_here();
    if (mprotect(page, PAGE, PROT_READ | PROT_WRITE) != 0)
        abort();
}

static const struct {
    const char *name;
    uint64_t (*call)(const void *, uint64_t);
} functions[FUNCTIONS] = {
    {"load_at_entry", load_at_entry},
    {"load_at_exit", load_at_exit},
    {"pointer_call_at_entry", pointer_call_at_entry},
    {"direct_call_at_entry", direct_call_at_entry},
    {"call_before_exit", call_before_exit},
    {"call_before_padded_exit", call_before_padded_exit},
};

static void *thread(void *stack)
{
    if (stack != NULL) {
        stack_t alternate = {.ss_sp = stack, .ss_size = 16 * PAGE};
        if (sigaltstack(&alternate, NULL) != 0)
            abort();
    }
    for (uint64_t round = 0; !atomic_load(&stop); round++) {
        while (atomic_load(&numbers[GATE]) && !atomic_load(&stop)) {
            atomic_store(&numbers[8 + HELD], 1);
            usleep(200);
        }
        atomic_store(&numbers[8 + HELD], 0);
        for (uint64_t i = 0; i < FUNCTIONS; i++) {
            int loads = i < 2, keep = atomic_load(&numbers[KEEP]) == i + 1;
            *page = !loads && keep;
            if (loads && keep && mprotect(page, PAGE, PROT_NONE) != 0)
                abort();
            atomic_store(&numbers[8 + i], atomic_load(&numbers[8 + i]) + 1);
            const void *argument = loads ? (const void *)page : (const void *)(uintptr_t)callee;
            if (functions[i].call(argument, round) != 2 * round + 100) {
                printf("wrong %s %llu\n", functions[i].name, (unsigned long long)round);
                fflush(stdout);
                _exit(1);
            }
        }
    }
    return NULL;
}

static void on_term(int signal)
{
    (void)signal;
    atomic_store(&stop, 1);
}

static void handle(int signal, struct sigaction action)
{
    if (sigaction(signal, &action, NULL) != 0)
        abort();
}

int main(int argc, char **argv)
{
    int fd = argc == 3 ? open(argv[2], O_RDWR | O_CREAT, 0666) : -1;
    if (fd < 0 || ftruncate(fd, 128) != 0)
        return 2;
    nested = strcmp(argv[1], "nested") == 0;
    int alternate = nested || strcmp(argv[1], "alternate") == 0;
    numbers = mmap(NULL, 128, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (numbers == MAP_FAILED || page == MAP_FAILED)
        return 2;
    int flags = alternate ? SA_ONSTACK : 0;
    handle(SIGTERM, (struct sigaction){.sa_handler = on_term});
    handle(SIGUSR1, (struct sigaction){.sa_handler = on_usr1, .sa_flags = flags});
    handle(SIGSEGV, (struct sigaction){.sa_sigaction = on_segv, .sa_flags = flags | SA_SIGINFO});
    void *stack = alternate ? aligned_alloc(PAGE, 16 * PAGE) : NULL;
    pthread_t other;
    pthread_create(&other, NULL, thread, stack);
    while (atomic_load(&numbers[8]) == 0)
        usleep(100);
    puts("ready");
    fflush(stdout);
    pthread_join(other, NULL);
    printf("ok calls");
    for (int i = 0; i < FUNCTIONS; i++)
        printf(" %s %llu", functions[i].name, (unsigned long long)atomic_load(&numbers[8 + i]));
    putchar('\n');
    return 0;
}
