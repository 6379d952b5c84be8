/* A hostile program: it maps a file that is named like a session's segment, and holds a lease on it
 * that it never gives up in time (fcntl(2), F_SETLEASE), so that opening it for writing blocks.
 *
 * Prints `ready`. SIGTERM ends it: `ok`. */
#define _GNU_SOURCE
#include "work.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

int main(void)
{
    int made = memfd_create("ipath", 0);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", made);
    if (made < 0 || ftruncate(made, 4096))
        return 2;
    int file = open(path, O_RDONLY);
    close(made);
    if (file < 0 || mmap(NULL, 4096, PROT_READ, MAP_SHARED, file, 0) == MAP_FAILED)
        return 2;
    signal(SIGTERM, end);
    signal(SIGIO, SIG_IGN);
    if (fcntl(file, F_SETLEASE, F_RDLCK))
        return 3;
    puts("ready");
    fflush(stdout);
    long result = 0;
    for (; !ends; usleep(1000)) {
        result = work(result);
        fcntl(file, F_SETLEASE, F_RDLCK);
    }
    printf("ok %ld\n", result);
    return 0;
}
