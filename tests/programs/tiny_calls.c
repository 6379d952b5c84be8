/* More threads than processors, which constantly call an empty function.
 *
 *     tiny_calls THREADS CALLS
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static long calls;

__attribute__((noinline, noclone, noipa)) static void tiny(void)
{
    __asm__("");
}

static void *call(void *unused)
{
    (void)unused;
    for (long i = 0; i < calls; i++)
        tiny();
    return NULL;
}

int main(int argc, char **argv)
{
    enum { MOST = 64 };
    pthread_t threads[MOST];
    if (argc < 3)
        return 2;
    int count = atoi(argv[1]);
    calls = atol(argv[2]);
    if (count > MOST)
        return 2;
    for (int i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, call, NULL))
            return 3;
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    printf("ok\n");
    return 0;
}
