/* A loop around a jump table with unused entries: `table_holes ROUNDS`. Prints its result. The
 * function `holes` is in table_holes.S; this is its source:
 *
 *     for (long i = 0; i < n; i++)
 *         switch (codes[i]) {
 *         case 0: x += 1; break;
 *         case 1: x -= 3; break;
 *         case 2: x *= 5; break;
 *         case 4: x ^= i; break;
 *         case 5: x >>= 1; break;
 *         case 6: x = ~x; break;
 *         case 7: x += 49; break;
 *         case 9: x |= 64; break;
 *         default: __builtin_unreachable();
 *         }
 */
#include <stdio.h>
#include <stdlib.h>

long holes(const unsigned char *codes, long n, long x);

int main(int argc, char **argv)
{
    static const unsigned char used[] = {0, 1, 2, 4, 5, 6, 7, 9};
    unsigned char codes[64];
    long x = 1;
    for (long round = argc > 1 ? atol(argv[1]) : 1; round > 0; round--) {
        for (int i = 0; i < 64; i++)
            codes[i] = used[(i * round + i / 3) % 8];
        x = holes(codes, round % 60, x) & 0xffff;
    }
    printf("ok %ld\n", x);
    return 0;
}
