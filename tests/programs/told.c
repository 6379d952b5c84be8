/* Loads libraries, calls `later` of the one loaded last, and unloads them: one step at each
 * SIGUSR1. At SIGTERM it prints its number of calls, and ends.
 *
 *     told STEP...
 *
 * A step is load:PATH, unload, call:N, or fork:N, which forks a child that calls `note` N times and
 * ends.
 */
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void *library;
static long (*later)(long);
static long calls;

/* Called by libraries. */
static volatile long noted;

__attribute__((noinline, noclone, noipa)) void note(void)
{
    noted++;
}

static const char *take(const char *step)
{
    if (strncmp(step, "load:", 5) == 0) {
        library = dlopen(step + 5, RTLD_NOW);
        *(void **)&later = library ? dlsym(library, "later") : NULL;
        return later ? NULL : dlerror();
    }
    if (strcmp(step, "unload") == 0)
        return dlclose(library) ? dlerror() : NULL;
    if (strncmp(step, "call:", 5) == 0) {
        for (long left = atol(step + 5); left > 0; left--, calls++)
            later(left);
        return NULL;
    }
    if (strncmp(step, "fork:", 5) == 0) {
        int status;
        pid_t child = fork();
        if (child == 0) {
            for (long left = atol(step + 5); left > 0; left--)
                note();
            _exit(0);
        }
        return waitpid(child, &status, 0) == child && status == 0 ? NULL : "the child";
    }
    return "no such step";
}

int main(int argc, char **argv)
{
    sigset_t told;
    int signal;
    sigemptyset(&told);
    sigaddset(&told, SIGUSR1);
    sigaddset(&told, SIGTERM);
    sigprocmask(SIG_BLOCK, &told, NULL);
    puts("ready");
    fflush(stdout);
    for (int step = 1; sigwait(&told, &signal) == 0 && signal == SIGUSR1; step++) {
        const char *wrong = step < argc ? take(argv[step]) : "no more steps";
        if (wrong) {
            puts(wrong);
            return 4;
        }
        printf("done %d\n", step);
        fflush(stdout);
    }
    printf("calls later %ld\n", calls);
    return 0;
}
