/* Calls `work` in three generations. Prints `ready`. On SIGUSR1 it forks a child, which forks
 * another and ends once `measured` exists in the folder FOLDER. The last one writes its process id
 * there to `orphan` and continues until it is killed. The first ends with `ok` on SIGTERM.
 *
 *     orphaned FOLDER
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile sig_atomic_t forks, ends;
static volatile long sink;

__attribute__((noinline, noclone, noipa)) void work(void)
{
    sink++;
}

static void asked(int number)
{
    *(number == SIGUSR1 ? &forks : &ends) = 1;
}

static void last(void)
{
    FILE *file = fopen("orphan", "w");
    if (file == NULL)
        _exit(2);
    fprintf(file, "%d\n", getpid());
    fclose(file);
    for (;;) {
        work();
        usleep(1000);
    }
}

static void child(void)
{
    struct stat there;
    if (fork() == 0)
        last();
    while (stat("measured", &there) != 0) {
        work();
        usleep(1000);
    }
    _exit(0);
}

int main(int argc, char **argv)
{
    if (argc != 2 || chdir(argv[1]) != 0)
        return 2;
    signal(SIGUSR1, asked);
    signal(SIGTERM, asked);
    printf("ready\n");
    fflush(stdout);
    while (!ends) {
        if (forks) {
            forks = 0;
            if (fork() == 0)
                child();
        }
        work();
        usleep(1000);
        waitpid(-1, NULL, WNOHANG);
    }
    printf("ok\n");
    return 0;
}
