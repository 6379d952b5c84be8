/* Threads that set their own name, call `work` ten times and end, one after another: `short-0` to
 * `short-4`. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>

enum { THREADS = 5, CALLS = 10 };

__attribute__((noinline, noclone, noipa)) long work(long x)
{
    return x * 3 + 1;
}

static void *named(void *number)
{
    char name[16];
    snprintf(name, sizeof name, "short-%d", *(int *)number);
    pthread_setname_np(pthread_self(), name);
    long sum = 0;
    for (int i = 0; i < CALLS; i++)
        sum += work(i);
    return sum > 0 ? NULL : number;
}

int main(void)
{
    for (int i = 0; i < THREADS; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, named, &i) != 0 || pthread_join(thread, NULL) != 0)
            return 1;
    }
    puts("ok");
    return 0;
}
