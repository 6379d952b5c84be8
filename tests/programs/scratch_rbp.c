/* Calls `work` through the functions of scratch_rbp.S. Prints its calls. */
#include <stdio.h>

void outer(void);
void around(void);

static volatile long calls;

__attribute__((noinline, noclone, noipa)) long work(long x)
{
    calls++;
    return x * 3 + 1;
}

int main(void)
{
    for (int i = 0; i < 100; i++) {
        outer();
        around();
    }
    printf("calls work %ld\n", calls);
    return 0;
}
