// Functions with landing pads in their first or last bytes. Each calls a function that throws for
// odd numbers. The landing pad returns the exception as the result, which the caller then catches
// by hand.
#include <cxxabi.h>

extern "C" {
#include "body.h"

#define BOTH(name) function name, name##_padded

BOTH(pad_to_pop);
BOTH(pad_to_ret);
BOTH(pad_to_start);

long may_throw(long x)
{
    if (x % 2)
        throw x;
    return x;
}
}

// A table with one call site, whose landing pad catches everything: the action 1 is the record
// (type 1, next 0), the type a null pointer (Itanium C++ ABI, exception handling tables).
__asm__(".macro catches name from to pad\n"
        ".pushsection .gcc_except_table, \"a\"\n"
        ".balign 4\n"
        ".Llsda_\\name:\n"
        ".byte 0xff, 0x9b\n"
        ".uleb128 8f - 7f\n"
        "7: .byte 0x01\n"
        ".uleb128 6f - 5f\n"
        "5: .uleb128 \\from - \\name\n"
        ".uleb128 \\to - \\from\n"
        ".uleb128 \\pad - \\name\n"
        ".uleb128 1\n"
        "6: .byte 1, 0\n"
        ".balign 4\n"
        ".long 0\n"
        "8:\n"
        ".popsection\n"
        ".cfi_personality 0x9b, DW.ref.__gxx_personality_v0\n"
        ".cfi_lsda 0x1b, .Llsda_\\name\n"
        ".endm\n"
        ".hidden DW.ref.__gxx_personality_v0\n"
        ".weak DW.ref.__gxx_personality_v0\n"
        ".pushsection .data.DW.ref.__gxx_personality_v0, \"awG\", @progbits, "
        "DW.ref.__gxx_personality_v0, comdat\n"
        ".balign 8\n"
        "DW.ref.__gxx_personality_v0: .quad __gxx_personality_v0\n"
        ".popsection\n"

        ".macro pad_to_pop_body name\n"
        "  catches \\name, .Lfrom_\\name, .Lto_\\name, .Lpad_\\name\n"
        "  push %rbx\n"
        "  .cfi_def_cfa_offset 16\n"
        "  .cfi_offset %rbx, -16\n"
        ".Lfrom_\\name: call may_throw\n"
        ".Lto_\\name: mov $-1, %eax\n"
        ".Lpad_\\name: pop %rbx\n"
        "  .cfi_def_cfa_offset 8\n"
        "  ret\n"
        ".endm\n"
        "body pad_to_pop\n"

        // The caller aligns the stack, and is made to leave it one word off.
        ".macro pad_to_ret_body name\n"
        "  catches \\name, .Lfrom_\\name, .Lto_\\name, .Lpad_\\name\n"
        "  nop\n"
        ".Lfrom_\\name: call may_throw_unaligned\n"
        ".Lto_\\name: mov $-1, %eax\n"
        ".Lpad_\\name: ret\n"
        ".endm\n"
        "body pad_to_ret\n"
        "function may_throw_unaligned\n"
        "  sub $16, %rsp\n"
        "  .cfi_def_cfa_offset 24\n"
        "  call may_throw\n"
        "  add $16, %rsp\n"
        "  .cfi_def_cfa_offset 8\n"
        "  ret\n"
        "end may_throw_unaligned\n"

        // The landing pad is in front of the call, after the first instruction.
        ".macro pad_to_start_body name\n"
        "  catches \\name, .Lfrom_\\name, .Lto_\\name, .Lpad_\\name\n"
        "  jmp 1f\n"
        ".Lpad_\\name:\n"
        "  .cfi_def_cfa_offset 16\n"
        "  add $8, %rsp\n" // at +2
        "  .cfi_def_cfa_offset 8\n"
        "  ret\n"
        "1: push %rbx\n"
        "  .cfi_def_cfa_offset 16\n"
        ".Lfrom_\\name: call may_throw\n"
        ".Lto_\\name: mov $-1, %eax\n"
        "  pop %rbx\n"
        "  .cfi_def_cfa_offset 8\n"
        "  ret\n"
        ".endm\n"
        "body pad_to_start\n");

// The thrown value, or -1.
template <function *called>
static long caught(long x, long unused)
{
    long got = called(x, unused);
    if (got == 0xffffffff)
        return -1;
    long thrown = *(long *)__cxxabiv1::__cxa_begin_catch((void *)got);
    __cxxabiv1::__cxa_end_catch();
    return thrown;
}

static long odd(long x, long unused) { return x % 2 ? x : unused - 1; }

#define CATCH(name) {#name, caught<name>, odd, 1}, {#name "_padded", caught<name##_padded>, odd, 1}

static const struct row rows[] = {CATCH(pad_to_pop), CATCH(pad_to_ret), CATCH(pad_to_start)};

int main() { return call_all(ROWS(rows), 50); }
