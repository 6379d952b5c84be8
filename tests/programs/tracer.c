/* Traces the process named by its argument without stopping it, until SIGTERM. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    if (argc < 2 || ptrace(PTRACE_SEIZE, atoi(argv[1]), NULL, NULL) != 0) {
        perror("tracer");
        return 2;
    }
    puts("ready");
    fflush(stdout);
    for (;;)
        pause();
}
