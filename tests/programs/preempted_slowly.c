/* `all` calls `leaf` CALLS times, successive calls on different paths, beside HOGS processes on the
 * same processor. Prints `all WALL CPU`: the wall time and the CPU time of `all`, in ns.
 *
 *     preempted_slowly CALLS HOGS */
#define _GNU_SOURCE
#include "timed.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { DEPTH = 12 };

static volatile long sink;

NOINLINE void leaf(uint64_t x)
{
    sink += x;
}

NOINLINE void walk(int depth, uint64_t way)
{
    if (depth == 0) {
        leaf(way);
        sink++;
    } else if (way & 1) {
        walk(depth - 1, way >> 1);
        sink++;
    } else {
        walk(depth - 1, way >> 1);
        sink--;
    }
}

NOINLINE void all(long calls)
{
    uint64_t way = 1;
    for (long i = 0; i < calls; i++) {
        way = work(way, 1);
        walk(DEPTH, way >> 32);
    }
    sink++;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    long calls = atol(argv[1]);
    int hogs = atoi(argv[2]);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    sched_setaffinity(0, sizeof one, &one);
    pid_t hog[16];
    for (int i = 0; i < hogs && i < 16; i++) {
        hog[i] = fork();
        if (hog[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            for (;;)
                sink++;
        }
    }
    int64_t cpu = now(CLOCK_PROCESS_CPUTIME_ID), wall = now(CLOCK_MONOTONIC);
    all(calls);
    wall = now(CLOCK_MONOTONIC) - wall;
    cpu = now(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    for (int i = 0; i < hogs && i < 16; i++) {
        kill(hog[i], SIGKILL);
        waitpid(hog[i], NULL, 0);
    }
    printf("all %ld %ld\n", (long)wall, (long)cpu);
    return 0;
}
