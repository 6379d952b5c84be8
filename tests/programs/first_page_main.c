/* Calls into first_page.c, which is a library or part of the program. */
#include <stdio.h>

long outermost(long);

int main(void) {
    long sum = 0;
    for (int i = 0; i < 100; i++)
        sum += outermost(i);
    printf("%ld\n", sum);
    return 0;
}
