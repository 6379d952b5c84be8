/* A program with its own handler of SIGTRAP, and functions that have room only for breakpoints.
 *
 *     trap_handler GATE
 *
 * Calls them until SIGUSR1, then reaches a breakpoint of its own, whose handler prints `inside` and
 * waits for the file GATE. Prints `left` and calls them until SIGTERM. */
#define _GNU_SOURCE
#include "trap_functions.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static atomic_int wanted, stop;
static const char *gate;

static void nap(void)
{
    struct timespec t = {0, 1000000};
    nanosleep(&t, NULL);
}

static void on_signal(int signal)
{
    atomic_store(signal == SIGTERM ? &stop : &wanted, 1);
}

static void on_trap(int signal)
{
    (void)signal;
    if (write(1, "inside\n", 7) != 7)
        _exit(3);
    while (access(gate, F_OK))
        nap();
}

int main(int argc, char **argv)
{
    struct sigaction action = {.sa_handler = on_trap};
    if (argc < 2 || sigaction(SIGTRAP, &action, NULL))
        return 2;
    gate = argv[1];
    signal(SIGUSR1, on_signal);
    signal(SIGTERM, on_signal);
    puts("ready");
    fflush(stdout);
    while (!atomic_load(&stop)) {
        for (int i = 0; i < 1000; i++) {
            tiny_one();
            tiny_two();
            tiny_four(0);
        }
        if (atomic_exchange(&wanted, 0)) {
            __asm__ volatile("int3");
            puts("left");
            fflush(stdout);
        }
    }
    puts("ok");
    return 0;
}
