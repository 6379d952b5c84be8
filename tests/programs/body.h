/* For programs whose functions are written in assembly: `body NAME` defines two functions with the
 * instructions of the macro `NAME_body`, which takes their name. `NAME` is directly followed by the
 * next function. `NAME_padded` is followed by padding, unless PADDING is 0, which removes all
 * padding.
 *
 * A row of the table of such a program calls one of them and knows the right result. */
#ifndef BODY_H
#define BODY_H

#include "function.h"

#include <stdio.h>

#ifndef PADDING
#define PADDING 16
#endif
#define TEXT(x) TEXT_OF(x)
#define TEXT_OF(x) #x

__asm__(".text\n"
        ".macro padding\n"
        ".if " TEXT(PADDING) "\n"
        ".skip " TEXT(PADDING) ", 0x90\n"
        ".endif\n"
        ".endm\n"
        ".macro body name\n"
        "function \\name\n"
        "\\name\\()_body \\name\n"
        "end \\name\n"
        "function \\name\\()_padded\n"
        "\\name\\()_body \\name\\()_padded\n"
        "end \\name\\()_padded\n"
        "padding\n"
        ".endm\n");

typedef long function(long, long);

struct row {
    const char *name;
    function *call;
    function *expected;
    /* The number of calls of the function `name` that one call makes. */
    long each;
};

#define ROW(name, expected) {#name, name, expected, 1}, {#name "_padded", name##_padded, expected, 1}

/* Calls every row with 1 to `most`, and prints `calls NAME N` for each. True if a result was wrong.
 */
static int call_rows(const struct row *rows, int count, long most)
{
    int wrong = 0;
    for (int i = 0; i < count; i++) {
        long calls = 0;
        for (long x = 1; x <= most; x++) {
            long got = rows[i].call(x, 0), expected = rows[i].expected(x, 0);
            if (got != expected) {
                printf("%s(%ld): %ld, expected %ld\n", rows[i].name, x, got, expected);
                wrong = 1;
            }
            calls += rows[i].each;
        }
        printf("calls %s %ld\n", rows[i].name, calls);
    }
    return wrong;
}

/* Calls `call_rows`, and prints whether all results were right. */
static inline int call_all(const struct row *rows, int count, long most)
{
    int wrong = call_rows(rows, count, most);
    puts(wrong ? "wrong" : "ok");
    return wrong;
}

#define ROWS(table) table, (int)(sizeof table / sizeof *table)

#endif
