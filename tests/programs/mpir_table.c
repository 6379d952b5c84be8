/* A launcher whose ranks are not its children: it has a table of them for debuggers (MPIR).
 *
 *     mpir_table PID...
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct {
    char *host_name;
    char *executable_name;
    int pid;
} MPIR_PROCDESC;

MPIR_PROCDESC *MPIR_proctable;
int MPIR_proctable_size;

int main(int argc, char **argv)
{
    MPIR_proctable = calloc(argc, sizeof *MPIR_proctable);
    for (int i = 1; i < argc; i++)
        MPIR_proctable[i - 1] = (MPIR_PROCDESC){"localhost", "rank", atoi(argv[i])};
    MPIR_proctable_size = argc - 1;
    puts("ready");
    fflush(stdout);
    pause();
    return 0;
}
