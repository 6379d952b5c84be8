/* `__fentry__`, which code compiled with -pg -mfentry calls at the start of each function, before
 * there is a frame and with all arguments in their registers, so it must not change anything. At
 * the end it prints its number of calls. */
#include <stdio.h>

unsigned long fentries;

__asm__(".text\n.globl __fentry__\n.type __fentry__, @function\n__fentry__:\n.cfi_startproc\n"
        "lock incq fentries(%rip)\nret\n.cfi_endproc\n.size __fentry__, . - __fentry__\n");

__attribute__((destructor)) static void tell(void)
{
    printf("fentries %lu\n", fentries);
}
