/* Short adjacent functions, some of which leave by tail calls to others: a patch of one may depend
 * on the first bytes of the next. Calls all of them until SIGTERM, then prints `ok`, or `wrong` if
 * any returned a wrong result. */
#include <signal.h>
#include <stdio.h>

#define FUNCTION(name, body)                                                                        \
    long name(long);                                                                                \
    __asm__(".type " #name ", @function\n.globl " #name "\n" #name ":\n.cfi_startproc\n" body            \
            "\n.cfi_endproc\n.size " #name ", . - " #name "\n")

FUNCTION(to_long, "lea 1(%rdi), %rdi\nnop\njmp long_one");
FUNCTION(before, "lea 7(%rdi), %eax\nret");
FUNCTION(long_one, "lea 1(%rdi), %rax\nlea 2(%rdi), %rax\nlea 3(%rdi), %rax\nlea 4(%rdi), %rax\nlea 5(%rdi), %rax\nret");
FUNCTION(to_short, "lea 1(%rdi), %rdi\nnop\njmp short_one");
FUNCTION(short_one, "mov %edi, %eax\nret");
FUNCTION(after, "lea 7(%rdi), %eax\nret");
FUNCTION(last, "lea 9(%rdi), %rax\nlea 9(%rdi), %rax\nret");

static volatile sig_atomic_t stop;

static void on_term(int signal)
{
    (void)signal;
    stop = 1;
}

int main(void)
{
    int is_wrong = 0;
    signal(SIGTERM, on_term);
    puts("ready");
    fflush(stdout);
    for (long i = 0; !stop; i = (i + 1) & 0xffff)
        is_wrong |= to_long(i) != i + 6 || before(i) != i + 7 || long_one(i) != i + 5 || to_short(i) != i + 1
            || short_one(i) != i || after(i) != i + 7 || last(i) != i + 9;
    puts(is_wrong ? "wrong" : "ok");
    return is_wrong;
}
