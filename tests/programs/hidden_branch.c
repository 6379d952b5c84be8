/* Calls a function from its start 100 times and in its middle 1000 times, by a branch of another
 * function that is hard to see (hidden_branch.S). */
#include <stdio.h>

int counted(int x), outer(int x);

int main(void) {
    int sum = 0;
    for (int i = 0; i < 100; i++)
        sum += counted(i % 3);
    for (int i = 0; i < 1000; i++)
        sum += outer(i);
    printf("%d\n", sum);
    return 0;
}
