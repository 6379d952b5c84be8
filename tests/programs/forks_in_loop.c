/* `forks_in_loop CHILDREN TURNS`: forks children, each of which makes TURNS turns in `rounds`, as the
 * parent does. Prints `ok`. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noinline, noclone, noipa)) long rounds(long n)
{
    long sum = 0;
    for (long i = 0; i < n; i++)
        sum ^= sum * 5 + i;
    return sum;
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    long turns = atol(argv[2]);
    for (long i = 0; i < atol(argv[1]); i++) {
        pid_t pid = fork();
        if (pid == 0)
            _exit(rounds(turns) == 42);
        int status;
        if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
            return 3;
    }
    if (rounds(turns) == 42)
        return 4;
    puts("ok");
    return 0;
}
