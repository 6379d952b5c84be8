// Exceptions with landing pads in the first and in the last bytes of a function.
//
//     pads CASE THREADS ROUNDS [COUNTER_FILE]
//
// The arguments and the counter file are those of windows.c; CASE is `pads`. The functions are
// hand-written: each returns the exception that lands in it as its result.
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <malloc.h>
#include <stdexcept>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <vector>

extern "C" {
typedef uint64_t (*callee)(uint64_t x);
uint64_t pad_at_entry(callee call, uint64_t x);
uint64_t pad_at_exit(callee call, uint64_t x);
void *__cxa_begin_catch(void *) noexcept;
void __cxa_end_catch();
}

// One call site, with a landing pad that catches everything.
#define TABLE(name)                                                                                \
    ".section .gcc_except_table,\"a\",@progbits\n.balign 4\n"                                      \
    ".L" name "_table: .byte 0xff, 0x9b\n .uleb128 .L" name "_types - .L" name "_from\n"           \
    ".L" name "_from: .byte 1\n .uleb128 .L" name "_end - .L" name "_sites\n"                      \
    ".L" name "_sites: .uleb128 .L" name "_call - " name ", .L" name "_back - .L" name "_call,"    \
    " .L" name "_pad - " name ", 1\n"                                                              \
    ".L" name "_end: .byte 1, 0\n.balign 4\n.long 0\n"                                             \
    ".L" name "_types: .text\n"

#define FUNCTION(name)                                                                             \
    ".globl " name "\n.type " name ",@function\n" name ":\n.cfi_startproc\n"                       \
    ".cfi_personality 0x9b, DW.ref.__gxx_personality_v0\n.cfi_lsda 0x1b, .L" name "_table\n"
#define END(name) ".cfi_endproc\n.size " name ",.-" name "\n.fill 5, 1, 0xcc\n"

asm(".text\n.p2align 4\n"
    FUNCTION("pad_at_entry")
    "  push %rbx\n"
    "  .cfi_def_cfa_offset 16\n"
    "  jmp 1f\n"
    ".Lpad_at_entry_pad:\n"
    "  pop %rbx\n"
    "  .cfi_def_cfa_offset 8\n"
    "  ret\n"
    "  .cfi_def_cfa_offset 16\n"
    "1: mov %rdi, %rax\n"
    "  mov %rsi, %rdi\n"
    ".Lpad_at_entry_call:\n"
    "  call *%rax\n"
    ".Lpad_at_entry_back:\n"
    "  add $7, %rax\n"
    "  add $2, %rax\n"
    "  pop %rbx\n"
    "  .cfi_def_cfa_offset 8\n"
    "  ret\n"
    END("pad_at_entry")
    TABLE("pad_at_entry")
    FUNCTION("pad_at_exit")
    "  push %rbx\n"
    "  .cfi_def_cfa_offset 16\n"
    "  mov %rdi, %rax\n"
    "  mov %rsi, %rdi\n"
    ".Lpad_at_exit_call:\n"
    "  call *%rax\n"
    ".Lpad_at_exit_back:\n"
    "  add $9, %rax\n"
    ".Lpad_at_exit_pad:\n"
    "  pop %rbx\n"
    "  .cfi_def_cfa_offset 8\n"
    "  ret\n"
    END("pad_at_exit")
    TABLE("pad_at_exit"));

struct line {
    std::atomic<uint64_t> numbers[8];
};

constexpr int most = 16, held = 7;
static line *lines;
static uint64_t rounds;
static std::atomic<bool> stop;

static bool throws(uint64_t x) { return x % 3 == 0; }

static uint64_t may_throw(uint64_t x)
{
    if (throws(x))
        throw std::runtime_error(std::to_string(x));
    return 2 * x;
}

static const struct {
    const char *name;
    uint64_t (*call)(callee, uint64_t);
} functions[] = {{"pad_at_entry", pad_at_entry}, {"pad_at_exit", pad_at_exit}};

static void work(int self)
{
    auto &numbers = lines[1 + self].numbers;
    uint64_t x = 12345 + (uint64_t)self;
    for (uint64_t round = 0; (round != rounds || rounds == 0) && !stop; round++) {
        while (lines->numbers[0] && !stop) {
            numbers[held] = 1;
            usleep(200);
        }
        numbers[held] = 0;
        for (int i = 0; i < 2; i++) {
            numbers[i]++;
            uint64_t result = functions[i].call(may_throw, x);
            bool right = throws(x) || result == 2 * x + 9;
            if (throws(x)) {
                try {
                    __cxa_begin_catch((void *)result);
                    throw;
                } catch (const std::runtime_error &error) {
                    right = error.what() == std::to_string(x);
                }
                __cxa_end_catch();
            }
            if (!right) {
                printf("wrong %s %llu\n", functions[i].name, (unsigned long long)round);
                fflush(stdout);
                _exit(1);
            }
        }
        x = (x * 6364136223846793005u + 1442695040888963407u) >> 9;
    }
}

int main(int argc, char **argv)
{
    int threads = argc > 3 && strcmp(argv[1], "pads") == 0 ? atoi(argv[2]) : 0;
    if (threads < 1 || threads > most)
        return 2;
    rounds = strtoull(argv[3], nullptr, 10);
    int flags = MAP_SHARED | MAP_ANONYMOUS, fd = -1;
    size_t size = sizeof(line) * (most + 1);
    if (argc > 4) {
        fd = open(argv[4], O_RDWR | O_CREAT, 0666);
        if (fd < 0 || ftruncate(fd, (off_t)size) != 0)
            return 2;
        flags = MAP_SHARED;
    }
    void *memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (memory == MAP_FAILED)
        return 2;
    lines = static_cast<line *>(memory);
    signal(SIGTERM, [](int) { stop = true; });
    // Exceptions are allocated: no thread may map its own arena when it first waits for another's.
    mallopt(M_ARENA_MAX, 1);
    std::vector<std::thread> all;
    for (int i = 0; i < threads; i++)
        all.emplace_back(work, i);
    for (int i = 0; i < threads; i++)
        while (lines[1 + i].numbers[1] == 0)
            usleep(100);
    puts("ready");
    fflush(stdout);
    for (auto &thread : all)
        thread.join();
    printf("ok calls");
    for (int f = 0; f < 2; f++) {
        uint64_t calls = 0;
        for (int i = 0; i < threads; i++)
            calls += lines[1 + i].numbers[f];
        printf(" %s %llu", functions[f].name, (unsigned long long)calls);
    }
    putchar('\n');
}
