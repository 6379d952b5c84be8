/* A function with FRAME bytes of locals. The length of its code does not depend on FRAME. */
#define TEXT(x) #x
#define BYTES(x) TEXT(x)
__asm__(".text\n"
        ".globl step\n"
        ".type step, @function\n"
        "step: .cfi_startproc\n"
        "sub $" BYTES(FRAME) ", %rsp\n"
        ".cfi_adjust_cfa_offset " BYTES(FRAME) "\n"
        "call *%rdi\n"
        "add $" BYTES(FRAME) ", %rsp\n"
        ".cfi_adjust_cfa_offset -" BYTES(FRAME) "\n"
        "ret\n"
        ".cfi_endproc\n"
        ".size step, . - step\n"
        ".section .note.GNU-stack, \"\", @progbits\n");
