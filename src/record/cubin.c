#include "record/cubin.h"

#include "record/flow.h"
#include "trace/record.h"

#include <elf.h>
#include <stdint.h>
#include <string.h>

// From Volta on an instruction has 128 bits, the low 12 of which are the opcode: nine bits that name the operation and
// three that say where its operands come from. Found by disassembling kernels compiled for sm_90a, sm_100a and
// sm_120a, where they are the same (docs/recorder.md).
enum { OPCODE_BYTES = 16, OPERATION_MASK = 0x1ff };

// `second` is the instruction's upper half.
static unsigned flags_of(unsigned operation, uint64_t second)
{
    switch (operation) {
    case 0x1b4: // UTMALDG: tensor copy, global to shared
        return GV_FUNCTION_TENSOR_COPY | GV_FUNCTION_TENSOR_LOAD;
    case 0x1b5: // UTMASTG: shared to global
        return GV_FUNCTION_TENSOR_COPY | GV_FUNCTION_TENSOR_STORE;
    case 0x1b6: // UTMAREDG: reduction into global
        return GV_FUNCTION_TENSOR_COPY | GV_FUNCTION_TENSOR_REDUCE;
    case 0x1b9: // UTMACCTL: bit 82 is set when it prefetches a map, and not when it drops one that was changed
        return second >> 18 & 1 ? 0 : GV_FUNCTION_TENSOR_REPLACE;
    case 0x18a: // ATOM
    case 0x18b: // ATOM.CAS
    case 0x18e: // RED
    case 0x1a3: // ATOMG of floating-point numbers
    case 0x1a6: // REDG of floating-point numbers
    case 0x1a8: // ATOMG
    case 0x1a9: // ATOMG.CAS
    case 0x1bb: // UBLKRED: bulk reduction
        return GV_FUNCTION_ATOMIC;
    case 0x1a5: // LDGMC: multimem load and reduce
        return GV_FUNCTION_MULTIMEM;
    default: break;
    }
    if (operation >= 0x19c && operation <= 0x19f) // SUST, SURED
        return GV_FUNCTION_SURFACE_STORE;
    // TEX, TLD, TLD4, TXD, TMML, TXQ, SULD.
    if ((operation >= 0x160 && operation <= 0x16f) || (operation >= 0x198 && operation <= 0x19b))
        return GV_FUNCTION_TEXTURE;
    return 0;
}

unsigned gv_instruction_flags(const unsigned char *instruction)
{
    uint64_t second;
    memcpy(&second, instruction + 8, sizeof second);
    return flags_of((instruction[0] | (unsigned)instruction[1] << 8) & OPERATION_MASK, second);
}

static unsigned scan_code(const unsigned char *code, size_t size)
{
    unsigned flags = 0;
    for (size_t at = 0; at + OPCODE_BYTES <= size; at += OPCODE_BYTES) {
        uint64_t second;
        memcpy(&second, code + at + 8, sizeof second);
        flags |= flags_of((code[at] | (unsigned)code[at + 1] << 8) & OPERATION_MASK, second);
    }
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

// A kernel that allocates memory calls the device runtime's malloc, by name.
static bool allocates_on_device(const view *image, const Elf64_Shdr *strings)
{
    const char *text = at(image, strings->sh_offset, strings->sh_size);
    return text && memmem(text, strings->sh_size, "\0malloc", 8);
}

// The section headers, or NULL when this is no cubin.
static const Elf64_Shdr *sections_of(const view *file, const Elf64_Ehdr **header)
{
    const Elf64_Ehdr *top = at(file, 0, sizeof *top);
    if (!top || memcmp(top->e_ident, ELFMAG, SELFMAG) != 0 || top->e_ident[EI_CLASS] != ELFCLASS64 ||
        top->e_machine != EM_CUDA || top->e_shentsize != sizeof(Elf64_Shdr))
        return NULL;
    const Elf64_Shdr *sections = at(file, top->e_shoff, (uint64_t)top->e_shnum * sizeof(Elf64_Shdr));
    *header = top;
    return top->e_shstrndx < top->e_shnum ? sections : NULL;
}

bool gv_cubin_scan(const void *image, size_t size, void (*found)(const char *name, unsigned flags, void *user),
                   void *user)
{
    view file = {image, size};
    const Elf64_Ehdr *header = NULL;
    const Elf64_Shdr *sections = sections_of(&file, &header);
    if (!sections)
        return false;
    const Elf64_Shdr *names = &sections[header->e_shstrndx];
    for (unsigned i = 0; i < header->e_shnum; i++) {
        if (sections[i].sh_type == SHT_STRTAB && launches_from_device(&file, &sections[i]))
            found(NULL, GV_FUNCTION_DEVICE_LAUNCH, user);
        if (sections[i].sh_type == SHT_STRTAB && allocates_on_device(&file, &sections[i]))
            found(NULL, GV_FUNCTION_DEVICE_HEAP, user);
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

// Is this section one of variables that a program can name: __device__, __managed__ and __constant__ ones?
static bool holds_variables(const char *section)
{
    return section && (strncmp(section, ".nv.global", 10) == 0 || strcmp(section, ".nv.constant3") == 0);
}

bool gv_cubin_variables(const void *image, size_t size, void (*found)(const char *name, void *user), void *user)
{
    view file = {image, size};
    const Elf64_Ehdr *header = NULL;
    const Elf64_Shdr *sections = sections_of(&file, &header);
    if (!sections)
        return false;
    const Elf64_Shdr *names = &sections[header->e_shstrndx];
    for (unsigned i = 0; i < header->e_shnum; i++) {
        if (sections[i].sh_type != SHT_SYMTAB)
            continue;
        size_t count = sections[i].sh_size / sizeof(Elf64_Sym);
        const Elf64_Sym *symbols = at(&file, sections[i].sh_offset, count * sizeof(Elf64_Sym));
        if (!symbols || sections[i].sh_link >= header->e_shnum)
            return false;
        for (size_t s = 0; s < count; s++) {
            Elf64_Sym symbol;
            memcpy(&symbol, (const char *)symbols + s * sizeof symbol, sizeof symbol);
            if (ELF64_ST_TYPE(symbol.st_info) != STT_OBJECT || symbol.st_shndx >= header->e_shnum ||
                !holds_variables(text_at(&file, names, sections[symbol.st_shndx].sh_name)))
                continue;
            const char *name = text_at(&file, &sections[sections[i].sh_link], symbol.st_name);
            if (!name)
                return false;
            // "$str", "$str1", "__unnamed_1": literals.
            if (*name && *name != '$' && strncmp(name, "__unnamed_", 10) != 0)
                found(name, user);
        }
    }
    return true;
}

// ---- Waits of kernels --------------------------------------------------------------------------------------------

// The name of the kernel whose code a section holds; NULL for other functions, and other sections.
static const char *kernel_of(const view *file, const Elf64_Shdr *sections, const Elf64_Ehdr *header, unsigned index)
{
    const Elf64_Shdr *names = &sections[header->e_shstrndx];
    const char *name = text_at(file, names, sections[index].sh_name);
    for (unsigned j = 0; j < header->e_shnum; j++) {
        const char *other = text_at(file, names, sections[j].sh_name);
        if (other && strncmp(other, ".nv.constant0.", 14) == 0 && strcmp(other + 14, name + 6) == 0)
            return name + 6;
    }
    return NULL;
}

// Does the kernel begin at the beginning of its section?
static bool begins_its_section(const view *file, const Elf64_Shdr *sections, const Elf64_Ehdr *header, unsigned index,
                               const char *kernel)
{
    for (unsigned i = 0; i < header->e_shnum; i++) {
        if (sections[i].sh_type != SHT_SYMTAB || sections[i].sh_link >= header->e_shnum)
            continue;
        size_t count = sections[i].sh_size / sizeof(Elf64_Sym);
        const Elf64_Sym *symbols = at(file, sections[i].sh_offset, count * sizeof(Elf64_Sym));
        for (size_t s = 0; symbols && s < count; s++) {
            Elf64_Sym symbol;
            memcpy(&symbol, (const char *)symbols + s * sizeof symbol, sizeof symbol);
            if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || symbol.st_shndx != index)
                continue;
            const char *name = text_at(file, &sections[sections[i].sh_link], symbol.st_name);
            if (name && strcmp(name, kernel) == 0)
                return symbol.st_value == 0;
        }
    }
    return false;
}

static const unsigned char *code_of(const view *file, const Elf64_Shdr *sections, const Elf64_Ehdr *header,
                                    unsigned index, bool *is_code)
{
    const char *name = text_at(file, &sections[header->e_shstrndx], sections[index].sh_name);
    *is_code = name && strncmp(name, ".text.", 6) == 0 && sections[index].sh_type == SHT_PROGBITS;
    return *is_code ? at(file, sections[index].sh_offset, sections[index].sh_size) : NULL;
}

// The list of the places where a kernel's indexed branches go on, or NULL: an attribute of the section that describes
// the kernel. Attributes have a format, a kind, and two bytes that are the value, or the size of the value behind them.
static const unsigned char *branch_tables(const view *file, const Elf64_Shdr *sections, const Elf64_Ehdr *header,
                                          const char *kernel, size_t *size)
{
    enum { HEAD = 4, VALUE_BEHIND = 4, INDIRECT_BRANCH_TARGETS = 0x34 };
    static const char prefix[] = ".nv.info.";
    for (unsigned i = 0; kernel && i < header->e_shnum; i++) {
        const char *name = text_at(file, &sections[header->e_shstrndx], sections[i].sh_name);
        if (!name || strncmp(name, prefix, sizeof prefix - 1) != 0 || strcmp(name + sizeof prefix - 1, kernel) != 0)
            continue;
        const unsigned char *info = at(file, sections[i].sh_offset, sections[i].sh_size);
        for (uint64_t place = 0; info && sections[i].sh_size - place >= HEAD;) {
            const unsigned char *attribute = info + place;
            uint64_t length = attribute[0] == VALUE_BEHIND ? attribute[2] | (unsigned)attribute[3] << 8 : 0;
            place += HEAD;
            if (length > sections[i].sh_size - place)
                break;
            if (attribute[0] == VALUE_BEHIND && attribute[1] == INDIRECT_BRANCH_TARGETS) {
                *size = length;
                return attribute + HEAD;
            }
            place += length;
        }
    }
    *size = 0;
    return NULL;
}

bool gv_cubin_flows(const void *image, size_t size, gv_module_flow *functions,
                    void (*found)(const char *kernel, gv_kernel_flow *flow, void *user), void *user)
{
    view file = {image, size};
    const Elf64_Ehdr *header = NULL;
    const Elf64_Shdr *sections = sections_of(&file, &header);
    *functions = (gv_module_flow){false, false};
    if (!sections)
        return false;
    // What the functions do decides which kernels are of interest: two passes.
    for (int pass = 0; pass < 2; pass++) {
        for (unsigned i = 0; i < header->e_shnum; i++) {
            bool is_code;
            const unsigned char *code = code_of(&file, sections, header, i, &is_code);
            if (is_code && !code)
                return false;
            const char *kernel = code ? kernel_of(&file, sections, header, i) : NULL;
            if (!code || (kernel == NULL) != (pass == 0))
                continue;
            gv_kernel_flow flow;
            size_t tables_size;
            const unsigned char *tables = branch_tables(&file, sections, header, kernel, &tables_size);
            if (!gv_flow_analyse(code, sections[i].sh_size, tables, tables_size, &flow))
                return false;
            flow.followed = flow.followed && kernel && begins_its_section(&file, sections, header, i, kernel);
            flow.split = flow.split && flow.followed;
            if (!kernel) {
                functions->waits |= flow.waits;
                functions->triggers |= flow.triggers;
                gv_flow_free(&flow);
            } else if (flow.waits || flow.triggers || (flow.calls && (functions->waits || functions->triggers))) {
                found(kernel, &flow, user);
            } else {
                gv_flow_free(&flow);
            }
        }
    }
    return true;
}
