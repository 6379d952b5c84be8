/* Another tool that probes the same function: a uprobe of the kernel (perf_event_open(2)).
 *
 *     uprobe PID FILE OFFSET
 *
 * Prints `ready` once it is set, and removes it at its end, on SIGTERM. */
#define _GNU_SOURCE
#include <linux/perf_event.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int kind = 0;
    FILE *type = fopen("/sys/bus/event_source/devices/uprobe/type", "r");
    if (argc < 4 || !type || fscanf(type, "%d", &kind) != 1)
        return 2;
    struct perf_event_attr attr = {
        .size = sizeof attr,
        .type = (uint32_t)kind,
        .uprobe_path = (uintptr_t)argv[2],
        .probe_offset = strtoul(argv[3], NULL, 0),
    };
    int fd = (int)syscall(SYS_perf_event_open, &attr, atoi(argv[1]), -1, -1, 0);
    if (fd < 0) {
        perror("perf_event_open");
        return 1;
    }
    sigset_t end;
    sigemptyset(&end);
    sigaddset(&end, SIGTERM);
    sigprocmask(SIG_BLOCK, &end, NULL);
    puts("ready");
    fflush(stdout);
    int got;
    sigwait(&end, &got);
    close(fd);
    puts("ok");
    return 0;
}
