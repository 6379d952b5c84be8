// Copies its text to anonymous memory and maps that over the text, as node, iodlr and BOLT do for
// huge pages. Then waits for a file and calls `work` 1,250 times.
//
//     copies_its_text GATE whole|part|named|none
//     copies_its_text GATE later END
//
// With `later` it copies its text once GATE exists. Then it calls `work` from the copy every 2 ms
// until END exists.
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41
#define PR_SET_VMA_ANON_NAME 0
#endif

typedef void *(*map_function)(void *, size_t, int, int, int, off_t);

static volatile long n;

__attribute__((noinline)) long work(long i) {
    n++;
    __asm__ volatile("" ::: "memory");
    return i * 3;
}

__attribute__((noinline)) long from_first(long i) {
    long result = work(i);
    __asm__ volatile("" : "+r"(result));
    return result + 1;
}

__attribute__((noinline)) long from_second(long i) {
    long result = work(i);
    __asm__ volatile("" : "+r"(result));
    return result + 2;
}

// Runs in the copy while the text is unmapped, so it calls no function of the text.
__attribute__((noinline, section(".mover"), optimize("no-tree-loop-distribute-patterns"))) static void
move(volatile char *text, size_t length, const char *copy, map_function map) {
    map((void *)text, length, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    for (size_t i = 0; i < length; i++) text[i] = copy[i];
}

int main(int count, char **words) {
    if (count < 3) return 2;
    const char *how = words[2];
    uintptr_t from = 0, to = 0;
    char line[600];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps)) {
        uintptr_t start, end;
        if (sscanf(line, "%lx-%lx", &start, &end) == 2 && start <= (uintptr_t)work && (uintptr_t)work < end) from = start, to = end;
    }
    fclose(maps);
    int is_later = !strcmp(how, "later");
    if (is_later) {
        puts("ready");
        fflush(stdout);
        while (access(words[1], F_OK)) usleep(2000);
    }
    // The last page of the text stays a mapping of the file.
    if (!strcmp(how, "part") && to - from > 4096) to -= 4096;
    size_t length = to - from;
    char *copy = mmap(0, length, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(copy, (void *)from, length);
    if (strcmp(how, "none")) {
        void (*moved)(volatile char *, size_t, const char *, map_function);
        uintptr_t place = (uintptr_t)copy + ((uintptr_t)move - from);
        memcpy(&moved, &place, sizeof moved);
        moved((char *)from, length, copy, mmap);
        mprotect((void *)from, length, PROT_READ | PROT_EXEC);
    }
    if (!strcmp(how, "named")) prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, from, length, "text in huge pages");
    munmap(copy, length);
    long sum = 0;
    for (int i = 0; is_later && access(words[3], F_OK); i++) {
        sum += from_first(i);
        usleep(2000);
    }
    puts("ready");
    fflush(stdout);
    while (access(words[1], F_OK)) usleep(2000);
    for (int i = 0; i < 1000; i++) {
        sum += from_first(i);
        if (i % 4 == 0) sum += from_second(i);
    }
    printf("calls work %ld\n", n);
    fflush(stdout);
    return sum == 0;
}
