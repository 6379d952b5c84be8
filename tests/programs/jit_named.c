/* Calls `work` from code that it writes while it runs, one piece after the other and each for a while, and writes down
 * what each is called:
 *
 *     map             in /tmp/perf-PID.map
 *     dump FOLDER     in FOLDER/jit-PID.dump, which it maps
 *     spin            in the map, one piece in which it spends its time until SIGTERM
 *     open            in a map that everybody can write to
 *
 * Of some pieces the file says first that they are something else. Prints for each piece how often it was called. */
#include "generated.h"

#include <elf.h>
#include <fcntl.h>
#include <signal.h>
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

static void open_dump(const char *folder)
{
    char path[512];
    snprintf(path, sizeof path, "%s/jit-%d.dump", folder, getpid());
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

static void name(unary code, size_t size, const char *what)
{
    now++;
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

static void spin(void)
{
    unary code = generate(spinning, sizeof spinning, (unary)(uintptr_t)100000);
    name(code, sizeof spinning, "spin of x.js:1");
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
    is_dump = strcmp(mode, "dump") == 0;
    char map[64];
    snprintf(map, sizeof map, "/tmp/perf-%d.map", getpid());
    umask(strcmp(mode, "open") == 0 ? 0 : 022);
    if (is_dump)
        open_dump(argv[2]);
    else if ((file = fopen(map, "w")) == NULL)
        return 2;
    if (strcmp(mode, "spin") == 0)
        spin();
    for (int i = 0; i < PIECES && strcmp(mode, "spin") != 0; i++) {
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
    return calls == 0 && strcmp(mode, "spin") != 0;
}
