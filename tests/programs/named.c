// Functions with the names in the command's help, called forever or for some seconds.
//
// usage: named [SECONDS]
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static volatile int turns;

__attribute__((noinline)) int MPI_Wait(int *request, int status) {
    free(malloc(64 + status));
    usleep(200);
    return *request + turns++;
}

static int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

__attribute__((noinline)) int solve(int n) {
    int all[64];
    for (int i = 0; i < 64; i++) all[i] = (i * 37 + n) % 64;
    qsort(all, 64, sizeof all[0], compare);
    return MPI_Wait(all, n % 8) + 1;
}

int main(int argc, char **argv) {
    time_t end = argc > 1 ? time(0) + atoi(argv[1]) : 0;
    puts("ready");
    fflush(stdout);
    for (int n = 0; !end || time(0) < end; n++) solve(n);
    return 0;
}
