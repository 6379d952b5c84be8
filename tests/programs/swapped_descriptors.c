/* A hostile program: a second process shares its descriptors, and replaces each new one by a file
 * that it can only read (`r`), or only name (`p`).
 *
 *     swapped_descriptors FILE r|p
 *
 * Prints `ready`. SIGTERM ends both: `calls work N`, `ok`. */
#define _GNU_SOURCE
#include "work.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { FIRST = 3, LAST = 6, FILE_AT = 100 };

static void swap(void)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;)
        for (int fd = FIRST; fd < LAST; fd++)
            if (fcntl(fd, F_GETFD) >= 0) {
                dup2(FILE_AT, fd);
                usleep(20000);
                close(fd);
            }
}

int main(int count, char **given)
{
    if (count < 3)
        return 2;
    int file = open(given[1], *given[2] == 'p' ? O_PATH : O_RDONLY);
    if (file < 0 || dup2(file, FILE_AT) < 0)
        return 2;
    close(file);
    signal(SIGTERM, end);
    long other = syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0);
    if (other == 0)
        swap();
    puts("ready");
    fflush(stdout);
    long calls = 0, result = 0;
    for (; !ends; usleep(1000), calls++)
        result = work(result);
    kill((pid_t)other, SIGKILL);
    printf("calls work %ld\nok %ld\n", calls, result);
    return 0;
}
