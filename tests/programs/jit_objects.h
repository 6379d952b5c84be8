/* Object files in memory, registered with debuggers: see the GDB manual, "JIT Compilation
 * Interface". */
#ifndef JIT_OBJECTS_H
#define JIT_OBJECTS_H

#include <elf.h>
#include <stdint.h>
#include <string.h>

struct jit_entry {
    struct jit_entry *next, *previous;
    const char *file;
    uint64_t size;
};

struct {
    uint32_t version, action;
    struct jit_entry *relevant, *first;
} __jit_debug_descriptor = {1, 0, NULL, NULL};

/* The head of a relocatable file with this many sections, the last of which has their names. */
static void begin_object(Elf64_Ehdr *head, size_t offset_of_sections, int sections)
{
    *head = (Elf64_Ehdr){
        .e_type = ET_REL,
        .e_machine = EM_X86_64,
        .e_version = EV_CURRENT,
        .e_ehsize = sizeof *head,
        .e_shoff = offset_of_sections,
        .e_shentsize = sizeof(Elf64_Shdr),
        .e_shnum = (Elf64_Half)sections,
        .e_shstrndx = (Elf64_Half)(sections - 1),
    };
    memcpy(head->e_ident, ELFMAG, SELFMAG);
    head->e_ident[EI_CLASS] = ELFCLASS64;
    head->e_ident[EI_DATA] = ELFDATA2LSB;
    head->e_ident[EI_VERSION] = EV_CURRENT;
}

#endif
