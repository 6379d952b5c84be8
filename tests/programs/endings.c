/* Calls `step` three times, then ends the way its argument says:
 *     endings exit N | signal N | exec PROGRAM */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

__attribute__((noinline, noclone, noipa)) int step(int x) { return x * 3 + 1; }

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    int number = atoi(argv[2]), sum = 0;
    for (int i = 0; i < 3; i++)
        sum += step(i);
    printf("sum %d\n", sum);
    fflush(stdout);
    if (strcmp(argv[1], "exit") == 0)
        return number;
    if (strcmp(argv[1], "exec") == 0)
        return execl(argv[2], argv[2], (char *)NULL);
    struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    signal(number, SIG_DFL);
    raise(number);
    return 1;
}
