/* Calls `work` through the functions of scratch_rbp.S. Prints its calls. */
#include "counted.h"

#include <stdio.h>

void outer(void);
void around(void);

int main(void)
{
    for (int i = 0; i < 100; i++) {
        outer();
        around();
    }
    printf("calls work %ld\n", calls);
    return 0;
}
