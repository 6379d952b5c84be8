/* Jumps through tables to labels at which control arrives from elsewhere, too: an interpreter with a
 * jump at the end of each operation, and a switch whose cases continue in one another.
 *
 * usage: dispatches ROUNDS */
#include <stdio.h>
#include <stdlib.h>

enum { ADD, DOUBLE, ODD, BACK, STOP };

/* Each operation ends with a jump of its own through the same table. */
__attribute__((noipa)) unsigned interprets(const unsigned char *code, unsigned x) {
    static void *const labels[] = {&&add, &&twice, &&odd, &&back, &&stop};
    const unsigned char *at = code;
    unsigned left = 3;
    goto *labels[*at++];
add:
    x += 3;
    goto *labels[*at++];
twice:
    x *= 2;
    goto *labels[*at++];
odd:
    if (x & 1)
        x ^= 0x55;
    goto *labels[*at++];
back:
    if (left-- > 0)
        at = code;
    goto *labels[*at++];
stop:
    return x;
}

/* Cases continue in the next one, and some are the target of a goto. */
__attribute__((noipa)) unsigned continues(unsigned kind, unsigned x) {
again:
    switch (kind) {
    case 0:
        x += 7;
        /* fallthrough */
    case 1:
        x = x * 3 + 1;
        if (x % 5 == 0)
            goto third;
        /* fallthrough */
    case 2:
        x ^= x >> 3;
        break;
    case 3:
    third:
        x -= 11;
        /* fallthrough */
    case 4:
        x = x << 1 | x >> 31;
        if (x % 7 == 0) {
            kind = x % 6;
            goto again;
        }
        break;
    case 5:
        x = ~x;
        break;
    default:
        x++;
    }
    return x;
}

/* The table is used in a loop, and a call of another function is between. */
__attribute__((noipa)) unsigned loops(const unsigned char *code, unsigned n) {
    unsigned x = n;
    for (unsigned i = 0; i < n; i++) {
        switch (code[i % 6]) {
        case ADD:
            x += i;
            continue;
        case DOUBLE:
            x = continues(i % 8, x);
            /* fallthrough */
        case ODD:
            x ^= i;
            break;
        case BACK:
            if (x & 1)
                break;
            x >>= 1;
            /* fallthrough */
        case STOP:
            x += 5;
            break;
        default:
            x--;
        }
        x *= 3;
    }
    return x;
}

int main(int argc, char **argv) {
    unsigned rounds = argc > 1 ? (unsigned)atoi(argv[1]) : 5, x = 0;
    static const unsigned char code[] = {ADD, ODD, DOUBLE, ODD, ADD, BACK, DOUBLE, STOP};
    for (unsigned round = 0; round < rounds; round++) {
        x = interprets(code, x + round);
        x = continues(round % 8, x);
        x += loops(code, 20);
    }
    printf("%u\n", x);
    return 0;
}
