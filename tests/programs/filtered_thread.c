/* One thread has a seccomp filter that allows everything; the first thread has none. Ends on
 * SIGTERM with `ok`. */
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "work.h"

static void *filtered(void *unused)
{
    struct sock_filter allow[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog program = {1, allow};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        abort();
    puts("ready");
    fflush(stdout);
    while (!ends)
        usleep(1000);
    return unused;
}

int main(void)
{
    struct sigaction ending = {.sa_handler = end};
    sigaction(SIGTERM, &ending, NULL);
    pthread_t thread;
    pthread_create(&thread, NULL, filtered, NULL);
    long sum = 0;
    while (!ends) {
        sum += work(sum);
        usleep(1000);
    }
    pthread_join(thread, NULL);
    puts("ok");
    return 0;
}
