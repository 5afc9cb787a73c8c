#include "record/cubin.h"

#include "trace/record.h"

#include <elf.h>
#include <stdint.h>
#include <string.h>

// From Volta on an instruction has 128 bits, the low 12 of which are the opcode: nine bits that name the operation and
// three that say where its operands come from. Found by disassembling kernels compiled for sm_90a, sm_100a and
// sm_120a, where they are the same (docs/recorder.md).
enum { OPCODE_BYTES = 16, OPERATION_MASK = 0x1ff };

static unsigned flags_of(unsigned operation)
{
    switch (operation) {
    case 0x1b4: // UTMALDG: tensor copy, global to shared
    case 0x1b5: // UTMASTG: shared to global
    case 0x1b6: // UTMAREDG: reduction into global
        return GV_FUNCTION_TENSOR_COPY;
    case 0x1a5: // LDGMC: multimem load and reduce
        return GV_FUNCTION_MULTIMEM;
    default: break;
    }
    // TEX, TLD, TLD4, TXD, TMML, TXQ and the surface loads, stores and reductions.
    if ((operation >= 0x160 && operation <= 0x16f) || (operation >= 0x198 && operation <= 0x19f))
        return GV_FUNCTION_TEXTURE;
    return 0;
}

static unsigned scan_code(const unsigned char *code, size_t size)
{
    unsigned flags = 0;
    for (size_t at = 0; at + OPCODE_BYTES <= size; at += OPCODE_BYTES)
        flags |= flags_of((code[at] | (unsigned)code[at + 1] << 8) & OPERATION_MASK);
    return flags;
}

typedef struct view {
    const unsigned char *bytes;
    size_t size;
} view;

static const void *at(const view *image, uint64_t offset, uint64_t size)
{
    return offset <= image->size && size <= image->size - offset ? image->bytes + offset : NULL;
}

static const char *text_at(const view *image, const Elf64_Shdr *table, uint32_t offset)
{
    const char *start = offset < table->sh_size ? at(image, table->sh_offset, table->sh_size) : NULL;
    return start && memchr(start + offset, '\0', table->sh_size - offset) ? start + offset : NULL;
}

// The device runtime's launch entry points are named in the symbol table of a module that uses them.
static bool launches_from_device(const view *image, const Elf64_Shdr *strings)
{
    const char *text = at(image, strings->sh_offset, strings->sh_size);
    return text && (memmem(text, strings->sh_size, "CDP2", 4) || memmem(text, strings->sh_size, "cudaGraphLaunch", 15));
}

bool gv_cubin_scan(const void *image, size_t size, void (*found)(const char *name, unsigned flags, void *user),
                   void *user)
{
    view file = {image, size};
    const Elf64_Ehdr *header = at(&file, 0, sizeof *header);
    if (!header || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 || header->e_ident[EI_CLASS] != ELFCLASS64 ||
        header->e_machine != EM_CUDA || header->e_shentsize != sizeof(Elf64_Shdr))
        return false;
    const Elf64_Shdr *sections = at(&file, header->e_shoff, (uint64_t)header->e_shnum * sizeof(Elf64_Shdr));
    if (!sections || header->e_shstrndx >= header->e_shnum)
        return false;
    const Elf64_Shdr *names = &sections[header->e_shstrndx];
    for (unsigned i = 0; i < header->e_shnum; i++) {
        if (sections[i].sh_type == SHT_STRTAB && launches_from_device(&file, &sections[i]))
            found(NULL, GV_FUNCTION_DEVICE_LAUNCH, user);
        const char *name = text_at(&file, names, sections[i].sh_name);
        // Bank 3 holds the module's __constant__ variables; bank 0 the parameters, the others the compiler's own.
        if (name && strcmp(name, ".nv.constant3") == 0)
            found(NULL, GV_FUNCTION_CONSTANT, user);
        if (!name || strncmp(name, ".text.", 6) != 0 || sections[i].sh_type != SHT_PROGBITS)
            continue;
        const unsigned char *code = at(&file, sections[i].sh_offset, sections[i].sh_size);
        if (!code)
            return false;
        unsigned flags = scan_code(code, sections[i].sh_size);
        if (!flags)
            continue;
        // Every kernel has a constant bank of parameters; other functions are called from any kernel.
        bool kernel = false;
        for (unsigned j = 0; j < header->e_shnum && !kernel; j++) {
            const char *other = text_at(&file, names, sections[j].sh_name);
            kernel = other && strncmp(other, ".nv.constant0.", 14) == 0 && strcmp(other + 14, name + 6) == 0;
        }
        found(kernel ? name + 6 : NULL, flags, user);
    }
    return true;
}
