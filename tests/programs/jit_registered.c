/* Calls `work` through generated code without a frame pointer. The argument selects how the code's
 * unwind entries are registered:
 *
 *     frames      by `__register_frame`
 *     debuggers   by `__jit_debug_descriptor`, in an ELF file in memory
 *     loaded      as `debuggers`, but only the loaded copy of the entries contains addresses
 *
 * SIGUSR1 starts the next phase:
 *
 *     first       The code is registered.
 *     unknown     The code is deregistered. Code with a larger frame overwrites it, and is called
 *                 1000 times. It stores a return address into `enter` where the smaller frame ended.
 *     second      The new code is registered.
 *
 * The third SIGUSR1 ends the program. */
#include "generated.h"
#include "jit_objects.h"

#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#define SMALL 24
#define LARGE 72

static volatile long calls;
static void *into_first;

NOINLINE long work(long n)
{
    calls++;
    return n * 3 + 1;
}

NOINLINE static long note(long n)
{
    into_first = __builtin_return_address(0);
    return n;
}

NOINLINE static long enter_unknown(unary f, long n) { return f(n) + 2; }
NOINLINE static long enter_second(unary f, long n) { return f(n) + 3; }

static const uint8_t small[] = {
    0x48, 0x83, 0xec, SMALL, MOV_RAX, CALL_RAX, 0x48, 0x83, 0xc4, SMALL, RET,
};

static const uint8_t large[] = {
    0x48, 0x83, 0xec, LARGE, 0x48, 0xb9, 0, 0, 0, 0, 0, 0, 0, 0 /* mov $decoy,%rcx */,
    0x48, 0x89, 0x4c, 0x24, SMALL /* mov %rcx,SMALL(%rsp) */, MOV_RAX, CALL_RAX, 0x48, 0x83, 0xc4, LARGE, RET,
};

static uint8_t *memory;

static unary write_code(const uint8_t *code, size_t size)
{
    next = memory;
    return generate(code, size, work);
}

/* A CIE with absolute pointers, an FDE for a function that begins with `sub $frame,%rsp`, and the
 * end of the list. */
static size_t unwind_entries(uint8_t *to, unary code, size_t size, int frame)
{
    static const uint8_t cie[] = {20, 0, 0, 0, 0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0x78, 16, 1, 0,
                                  0x0c, 7, 8, 0x90, 1, 0, 0};
    uint8_t fde[] = {28, 0, 0, 0, sizeof cie + 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                     0, 0, 0, 0, 0, 0, 0, 0, 0, 0x44, 0x0e, (uint8_t)(frame + 8), 0, 0, 0, 0};
    uint64_t length = size;
    memcpy(fde + 8, &code, 8);
    memcpy(fde + 16, &length, 8);
    memcpy(to, cie, sizeof cie);
    memcpy(to + sizeof cie, fde, sizeof fde);
    memset(to + sizeof cie + sizeof fde, 0, 4);
    return sizeof cie + sizeof fde + 4;
}

void __register_frame(void *);
void __deregister_frame(void *);

NOINLINE void __jit_debug_register_code(void) { __asm__ volatile("" ::: "memory"); }

struct object {
    Elf64_Ehdr header;
    Elf64_Shdr sections[4];
    char names[32];
    uint8_t frames[128];
};

static struct object *object;
static struct jit_entry *entry;
static uint8_t *frames;

static void register_with_debuggers(unary code, size_t size, int frame, int is_loaded)
{
    static const char names[] = "\0.text\0.eh_frame\0.shstrtab";
    object = calloc(1, sizeof *object);
    entry = calloc(1, sizeof *entry);
    begin_object(&object->header, offsetof(struct object, sections), 4);
    size_t length = unwind_entries(object->frames, code, size, frame);
    if (is_loaded) {
        unwind_entries(frames, code, size, frame);
        unwind_entries(object->frames, NULL, size, frame);
    }
    object->sections[1] = (Elf64_Shdr){.sh_name = 1, .sh_type = SHT_NOBITS, .sh_flags = SHF_ALLOC | SHF_EXECINSTR,
                                       .sh_addr = (uintptr_t)code, .sh_size = size};
    object->sections[2] = (Elf64_Shdr){.sh_name = 7, .sh_type = SHT_PROGBITS, .sh_flags = SHF_ALLOC,
                                       .sh_addr = is_loaded ? (uintptr_t)frames : 0,
                                       .sh_offset = offsetof(struct object, frames), .sh_size = length};
    object->sections[3] = (Elf64_Shdr){.sh_name = 17, .sh_type = SHT_STRTAB,
                                       .sh_offset = offsetof(struct object, names), .sh_size = sizeof names};
    memcpy(object->names, names, sizeof names);
    *entry = (struct jit_entry){NULL, NULL, (const char *)object, sizeof *object};
    __jit_debug_descriptor.first = __jit_debug_descriptor.relevant = entry;
    __jit_debug_descriptor.action = 1;
    __jit_debug_register_code();
}

static void deregister_with_debuggers(void)
{
    __jit_debug_descriptor.first = NULL;
    __jit_debug_descriptor.relevant = entry;
    __jit_debug_descriptor.action = 2;
    __jit_debug_register_code();
    free(object);
    free(entry);
}

static const char *how;

static void register_code(unary code, size_t size, int frame)
{
    if (strcmp(how, "frames") == 0) {
        unwind_entries(frames, code, size, frame);
        __register_frame(frames);
    } else {
        register_with_debuggers(code, size, frame, strcmp(how, "loaded") == 0);
    }
}

static void deregister_code(void)
{
    if (strcmp(how, "frames") == 0)
        __deregister_frame(frames);
    else
        deregister_with_debuggers();
}

static volatile sig_atomic_t signals;

static void go_on(int signal)
{
    (void)signal;
    signals++;
}

static void say(const char *what)
{
    puts(what);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    how = argc > 1 ? argv[1] : "";
    signal(SIGUSR1, go_on);
    memory = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    frames = malloc(256);
    if (memory == MAP_FAILED || frames == NULL)
        return 2;
    enter(note, 1);
    unary code = write_code(small, sizeof small);
    register_code(code, sizeof small, SMALL);
    say("first");
    while (signals == 0) {
        enter(code, 1);
        usleep(100);
    }
    deregister_code();
    code = write_code(large, sizeof large);
    memcpy(memory + 6, &into_first, sizeof into_first);
    for (int i = 0; i < 1000; i++)
        enter_unknown(code, i);
    say("unknown");
    while (signals == 1)
        usleep(1000);
    register_code(code, sizeof large, LARGE);
    say("second");
    while (signals == 2) {
        enter_second(code, 1);
        usleep(100);
    }
    deregister_code();
    say("ok");
    return calls == 0;
}
