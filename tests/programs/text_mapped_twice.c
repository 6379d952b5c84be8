/* A page of the program's own text mapped a second time, as V8 does with its built-in functions:
 * one function is mapped twice, the others once. If the argument names a copy of the program, the
 * page is one of that file, mapped shared and writable.
 *
 * Prints `ready`, waits for SIGUSR1, calls `twice_work` at both addresses and `once_work`, prints
 * `first N`, `second N`, `once N` and `ok SUM`; ends on SIGTERM. Standard error has the addresses
 * of the three. */
#include "gate.h"

typedef unsigned long work(unsigned long);

/* Alone on its page, so that the page can run at another address. */
__attribute__((noinline, aligned(4096), section(".text.twice"))) unsigned long
twice_work(unsigned long x)
{
    for (int i = 0; i < 3; i++)
        x = x * 31 + 7;
    return x;
}

__attribute__((noinline, aligned(4096), section(".text.once"))) unsigned long
once_work(unsigned long x)
{
    for (int i = 0; i < 3; i++)
        x = x * 33 + 5;
    return x;
}

/* The file offset of the byte at `address`; stores the file's name in `path`. */
static off_t in_file(uintptr_t address, char path[4096])
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[8192];
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
        unsigned long start, end, offset;
        if (sscanf(line, "%lx-%lx %*s %lx %*s %*s %4095[^\n]", &start, &end, &offset, path) == 4
            && start <= address && address < end) {
            fclose(maps);
            return (off_t)(offset + (address - start));
        }
    }
    exit(2);
}

int main(int argc, char **argv)
{
    await_nothing_yet();
    char path[4096];
    off_t offset = in_file((uintptr_t)twice_work, path);
    int is_shared = argc > 1;
    int fd = open(is_shared ? argv[1] : path, is_shared ? O_RDWR : O_RDONLY);
    int protection = PROT_READ | PROT_EXEC | (is_shared ? PROT_WRITE : 0);
    int flags = is_shared ? MAP_SHARED : MAP_PRIVATE;
    void *page = mmap(NULL, GATE_PAGE, protection, flags, fd, offset);
    if (page == MAP_FAILED)
        gate_fail("mmap");
    close(fd);
    work *volatile first = twice_work, *volatile once = once_work;
    work *volatile second = (work *)(uintptr_t)page;
    fprintf(stderr, "%p %p %p\n", (void *)(uintptr_t)first, page, (void *)(uintptr_t)once);
    say("ready");
    await_test(SIGUSR1);
    unsigned long sum = 0;
    for (unsigned long x = 0; x < 500; x++) {
        sum = sum * 31 + first(x) + once(x);
        for (int i = 0; i < 3; i++)
            sum = sum * 31 + second(x);
    }
    printf("first 500\nsecond 1500\nonce 500\nok %lu\n", sum);
    fflush(stdout);
    await_test(SIGTERM);
    return 0;
}
