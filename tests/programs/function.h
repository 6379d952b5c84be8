/* For functions written in assembly: `function NAME` begins one, `end NAME` ends it. A program can
 * set END_WITH to add code before each end, and FOLLOWED_BY to add code after it. */
#ifndef FUNCTION_H
#define FUNCTION_H

#ifndef END_WITH
#define END_WITH ""
#endif
#ifndef FOLLOWED_BY
#define FOLLOWED_BY ""
#endif

__asm__(".text\n"
        ".macro function name\n"
        ".globl \\name\n"
        ".type \\name, @function\n"
        "\\name:\n"
        ".cfi_startproc\n"
        ".endm\n"
        ".macro end name\n"
        END_WITH
        ".cfi_endproc\n"
        ".size \\name, . - \\name\n"
        FOLLOWED_BY
        ".endm\n");

#endif
