/* Generates pieces of code at run time, which call `work` one after the other, each for a while.
 * Records the name of each piece:
 *
 *     map             in /tmp/perf-PID.map
 *     dump FOLDER     in FOLDER/jit-PID.dump, which it maps
 *     thread FOLDER   in FOLDER/jit-PID-TID.dump, as bun does
 *     gdb             in memory, for debuggers: waits for SIGUSR1, prints `done`, ends on SIGTERM
 *     spin            in the map; only one piece, which runs until SIGTERM
 *     native          the same, of a piece that calls functions of the file
 *     open            in a map that is writable for everyone
 *
 * For some pieces the file first has a wrong name. Prints the number of calls of each piece. */
#include "generated.h"
#include "jit_objects.h"

#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECES 30

static long calls;

NOINLINE long work(long n)
{
    calls++;
    return n * 3 + 1;
}

/* Counts down from the address of its callee, which is a number here. */
static const uint8_t spinning[] = {
    PUSH_RBP, MOV_RBP_RSP, MOV_RAX, 0x48, 0xff, 0xc8 /* dec rax */, 0x75, 0xfb /* jnz */, LEAVE, RET,
};

static FILE *file;
static int is_dump;
static uint64_t now;

static void put(const void *bytes, size_t size)
{
    if (fwrite(bytes, size, 1, file) != 1)
        exit(2);
}

static void open_dump(const char *folder, const char *thread)
{
    char path[512];
    snprintf(path, sizeof path, "%s/jit-%d%s.dump", folder, getpid(), thread);
    file = fopen(path, "w+");
    struct {
        uint32_t magic, version, size, machine, pad, pid;
        uint64_t time, flags;
    } header = {0x4a695444, 1, sizeof header, EM_X86_64, 0, (uint32_t)getpid(), now, 0};
    if (file == NULL)
        exit(2);
    put(&header, sizeof header);
    fflush(file);
    if (mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fileno(file), 0) == MAP_FAILED)
        exit(2);
}

static int is_gdb;

/* A loaded object file: its code section contains its address, and a function begins there. */
static void register_code(unary code, size_t size, const char *what)
{
    static const char names[] = "\0.text\0.symtab\0.strtab\0";
    struct object {
        Elf64_Ehdr header;
        Elf64_Shdr sections[5];
        Elf64_Sym symbols[2];
        char strings[64], names[sizeof names];
    } *object = calloc(1, sizeof *object);
    struct jit_entry *entry = calloc(1, sizeof *entry);
    if (object == NULL || entry == NULL)
        exit(2);
    begin_object(&object->header, offsetof(struct object, sections), 5);
    object->sections[1] = (Elf64_Shdr){.sh_name = 1, .sh_type = SHT_NOBITS, .sh_flags = SHF_ALLOC | SHF_EXECINSTR,
                                       .sh_addr = (uintptr_t)code - 16, .sh_size = size + 16};
    object->sections[2] = (Elf64_Shdr){.sh_name = 7, .sh_type = SHT_SYMTAB, .sh_offset = offsetof(struct object, symbols),
                                       .sh_size = sizeof object->symbols, .sh_link = 3, .sh_info = 1,
                                       .sh_entsize = sizeof(Elf64_Sym)};
    object->sections[3] = (Elf64_Shdr){.sh_name = 15, .sh_type = SHT_STRTAB,
                                       .sh_offset = offsetof(struct object, strings), .sh_size = sizeof object->strings};
    object->sections[4] = (Elf64_Shdr){.sh_name = 15, .sh_type = SHT_STRTAB,
                                       .sh_offset = offsetof(struct object, names), .sh_size = sizeof names};
    object->symbols[1] = (Elf64_Sym){.st_name = 1, .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC), .st_shndx = 1,
                                     .st_value = 16, .st_size = size};
    snprintf(object->strings + 1, sizeof object->strings - 1, "%s", what);
    memcpy(object->names, names, sizeof names);
    *entry = (struct jit_entry){__jit_debug_descriptor.first, NULL, (const char *)object, sizeof *object};
    if (entry->next != NULL)
        entry->next->previous = entry;
    __jit_debug_descriptor.first = entry;
}

static void name(unary code, size_t size, const char *what)
{
    now++;
    if (is_gdb) {
        register_code(code, size, what);
        return;
    }
    if (!is_dump) {
        fprintf(file, "no line\n%lx %zx %s\n", (unsigned long)(uintptr_t)code, size, what);
    } else {
        struct {
            uint32_t kind, size;
            uint64_t time;
            uint32_t pid, tid;
            uint64_t vma, start, size_of_code, index;
        } load = {0, (uint32_t)(sizeof load + strlen(what) + 1 + size), now, (uint32_t)getpid(),
                  (uint32_t)getpid(), (uintptr_t)code, (uintptr_t)code, size, now};
        put(&load, sizeof load);
        put(what, strlen(what) + 1);
        put((const void *)(uintptr_t)code, size);
    }
    fflush(file);
}

static volatile sig_atomic_t over;

static void end(int signal)
{
    (void)signal;
    over = 1;
}

#define PART(name) \
    NOINLINE static long name(long n) \
    { \
        for (volatile long i = 0; i < 20000; i++) \
            n += i; \
        return n; \
    }
PART(parse)
PART(sort)
PART(format)
PART(compress)

NOINLINE static long export(long n) { return parse(n) + sort(n) + format(n) + compress(n); }

static void spin(int is_native)
{
    unary code;
    if (is_native) {
        code = generate(framed, sizeof framed, export);
        name(code, sizeof framed, "report of x.js:2");
    } else {
        code = generate(spinning, sizeof spinning, (unary)(uintptr_t)100000);
        name(code, sizeof spinning, "spin of x.js:1");
    }
    signal(SIGTERM, end);
    puts("ready");
    fflush(stdout);
    while (!over)
        enter(code, 1);
    puts("ok");
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    next = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (next == MAP_FAILED)
        return 2;
    char thread[32] = "";
    if (strcmp(mode, "thread") == 0)
        snprintf(thread, sizeof thread, "-%d", getpid());
    is_dump = strcmp(mode, "dump") == 0 || *thread != 0;
    is_gdb = strcmp(mode, "gdb") == 0;
    if (is_gdb) {
        signal(SIGUSR1, end);
        puts("ready");
        fflush(stdout);
        while (!over)
            usleep(1000);
        over = 0;
        signal(SIGTERM, end);
    }
    char map[64];
    snprintf(map, sizeof map, "/tmp/perf-%d.map", getpid());
    umask(strcmp(mode, "open") == 0 ? 0 : 022);
    if (is_dump)
        open_dump(argv[2], thread);
    else if ((file = fopen(map, "w")) == NULL)
        return 2;
    int is_native = strcmp(mode, "native") == 0;
    int is_one = is_native || strcmp(mode, "spin") == 0;
    if (is_one)
        spin(is_native);
    for (int i = 0; i < PIECES && !is_one; i++) {
        char what[32];
        unary code = generate(framed, sizeof framed, work);
        if (i % 3 == 0)
            name(code, sizeof framed + 4, "something else");
        snprintf(what, sizeof what, "piece %d of x.js", i);
        name(code, sizeof framed, what);
        long times = 100 + i;
        for (long n = 0; n < times; n++)
            enter(code, n);
        printf("%ld %s\n", times, what);
        usleep(5000);
    }
    if (is_gdb) {
        puts("done");
        fflush(stdout);
        while (!over)
            usleep(1000);
        puts("ok");
    }
    return calls == 0 && !is_one;
}
