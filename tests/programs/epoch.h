/* For programs that determine which of their calls of `work` must be counted.
 *
 * The first 64-bit number of a file is the epoch. The test increments it before and after each
 * change of the instrumentation. A call is *sure* if the epoch was even and the same before and
 * after it, and the first byte of `work` differed from its value at the start. It is *unsure* if
 * the epoch changed during the call or was odd. From 2^32 on, no call begins in an odd epoch, so
 * that hardly any call is unsure; these calls are counted separately. */
#ifndef EPOCH_H
#define EPOCH_H

#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))

#define HELD (1ull << 32)

struct counts {
    _Atomic uint64_t sure[2], unsure[2], all;
};

static _Atomic uint64_t *epoch;
static uint8_t original;

NOINLINE uint64_t work(uint64_t x, uint64_t y)
{
    x ^= y >> 7;
    if (x & 64)
        return x * 5 + y;
    x += 0x9e3779b97f4a7c15u;
    return x ^ y;
}

static void wrong(const char *what, long value)
{
    char line[128];
    int len = snprintf(line, sizeof line, "wrong %s %ld\n", what, value);
    if (write(1, line, (size_t)len) != len)
        _exit(3);
    _exit(1);
}

static void epoch_open(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT, 0666);
    if (fd < 0 || ftruncate(fd, 4096) != 0)
        exit(2);
    epoch = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (epoch == MAP_FAILED)
        exit(2);
    close(fd);
    original = *(volatile const uint8_t *)(uintptr_t)work;
}

/* Calls `work`, checks its result and counts the call. */
static uint64_t call_work(struct counts *counts, uint64_t x)
{
    uint64_t before;
    while ((before = atomic_load(epoch)) >= HELD && before % 2 != 0)
        usleep(100);
    int held = before >= HELD;
    uint8_t byte = *(volatile const uint8_t *)(uintptr_t)work;
    uint64_t y = x >> 3, r = work(x, y);
    uint64_t after = atomic_load(epoch);
    uint64_t z = x ^ y >> 7;
    if (r != (z & 64 ? z * 5 + y : (z + 0x9e3779b97f4a7c15u) ^ y))
        wrong("result", (long)x);
    counts->all++;
    if (before != after || before % 2 != 0)
        counts->unsure[held]++;
    else if (byte != original)
        counts->sure[held]++;
    return r;
}

/* The last line of output, without its end. */
static void print_counts(const struct counts *counts)
{
    printf("ok sure %llu unsure %llu held %llu unsure %llu all %llu",
           (unsigned long long)counts->sure[0], (unsigned long long)counts->unsure[0],
           (unsigned long long)counts->sure[1], (unsigned long long)counts->unsure[1],
           (unsigned long long)counts->all);
}

#endif
