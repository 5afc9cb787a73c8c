#include "cli/binary.h"

#include "base/memory.h"
#include "report/stack.h"

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwfl.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ASSEMBLY_FUNCTION_MAX = 4096 };

typedef struct function_symbol {
    uint64_t start, size;
    const char *name;
} function_symbol;

struct gv_binary {
    Dwfl *dwfl;
    Dwfl_Module *module;
    function_symbol *symbols; // sorted by start; made when first asked for
    size_t symbol_count;
    const char **stub_kernels; // of the launch stubs among them: see gv_stub_kernel
    size_t stub_count, stub_capacity;
    bool symbols_read;
};

// ---- Opening ------------------------------------------------------------------------------------------------------

static const Dwfl_Callbacks callbacks = {
    .find_debuginfo = dwfl_standard_find_debuginfo,
    .section_address = dwfl_offline_section_address,
};

static gv_status check_build(const gv_binary *binary, const char *path, const uint8_t *build_id, size_t length,
                             uint64_t not_after_ns, gv_error *error)
{
    const unsigned char *own = NULL;
    GElf_Addr where;
    int own_length = dwfl_module_build_id(binary->module, &own, &where);
    if (length && own_length == (int)length && memcmp(own, build_id, length) == 0)
        return GV_OK;
    struct stat status;
    // Tools that edit binaries (patchelf) leave the note in the file, but not where a process finds it.
    bool unchanged = !length && stat(path, &status) == 0 &&
                     (uint64_t)status.st_mtim.tv_sec * 1000000000u + (uint64_t)status.st_mtim.tv_nsec <= not_after_ns;
    return unchanged ? GV_OK : gv_fail(error, GV_ERR_VERSION, "%s is not the build that ran", path);
}

gv_status gv_binary_open(const char *path, const uint8_t *build_id, size_t build_id_length, uint64_t not_after_ns,
                         gv_binary **binary, gv_error *error)
{
    *binary = NULL;
    // Without this libdw asks servers on the network for debug files, which takes as long as it takes.
    unsetenv("DEBUGINFOD_URLS");
    gv_binary *opened = gv_calloc(1, sizeof *opened);
    if (!opened)
        return gv_fail(error, GV_ERR_MEMORY, "out of memory while %s was read", path);
    struct stat status;
    if (stat(path, &status) != 0 || !S_ISREG(status.st_mode)) {
        gv_free(opened);
        return gv_fail(error, GV_ERR_MISSING, "%s cannot be opened", path);
    }
    opened->dwfl = dwfl_begin(&callbacks);
    if (opened->dwfl) {
        dwfl_report_begin(opened->dwfl);
        opened->module = dwfl_report_elf(opened->dwfl, path, path, -1, 0, true);
        dwfl_report_end(opened->dwfl, NULL, NULL);
    }
    if (!opened->module) {
        gv_binary_close(opened);
        return gv_fail(error, GV_ERR_MISSING, "%s cannot be read: %s", path, dwfl_errmsg(-1));
    }
    gv_status result = check_build(opened, path, build_id, build_id_length, not_after_ns, error);
    if (result != GV_OK)
        gv_binary_close(opened);
    else
        *binary = opened;
    return result;
}

void gv_binary_close(gv_binary *binary)
{
    if (!binary)
        return;
    if (binary->dwfl)
        dwfl_end(binary->dwfl);
    gv_free(binary->symbols);
    gv_free(binary->stub_kernels);
    gv_free(binary);
}

// ---- Symbols ------------------------------------------------------------------------------------------------------

static int by_start(const void *left, const void *right)
{
    const function_symbol *a = left, *b = right;
    if (a->start != b->start)
        return a->start < b->start ? -1 : 1;
    // The one with a size last, so that the search, which takes the last, prefers it.
    return (a->size != 0) - (b->size != 0);
}

// libdw's own look-up walks over the whole table for each address; a framework's library has a million symbols and a
// trace a thousand frames. So they are sorted once.
static void read_symbols(gv_binary *binary)
{
    binary->symbols_read = true;
    int count = dwfl_module_getsymtab(binary->module);
    if (count <= 0)
        return;
    binary->symbols = gv_calloc((size_t)count, sizeof *binary->symbols);
    for (int i = 0; binary->symbols && i < count; i++) {
        GElf_Sym symbol;
        GElf_Addr address;
        GElf_Word section;
        Elf *elf;
        Dwarf_Addr bias;
        const char *name = dwfl_module_getsym_info(binary->module, i, &symbol, &address, &section, &elf, &bias);
        unsigned char type = GELF_ST_TYPE(symbol.st_info);
        if (!name || !*name || symbol.st_shndx == SHN_UNDEF || (type != STT_FUNC && type != STT_GNU_IFUNC))
            continue;
        binary->symbols[binary->symbol_count++] = (function_symbol){address, symbol.st_size, name};
        const char *kernel = gv_stub_kernel(name);
        if (kernel && GV_GROW(binary->stub_kernels, binary->stub_capacity, binary->stub_count + 1))
            binary->stub_kernels[binary->stub_count++] = kernel;
    }
    if (binary->symbols && binary->symbol_count)
        qsort(binary->symbols, binary->symbol_count, sizeof *binary->symbols, by_start);
}

// Is this a kernel's host function, which only calls the kernel's launch stub?
static bool is_kernel(const gv_binary *binary, const char *function)
{
    for (size_t i = 0; i < binary->stub_count; i++) {
        if (gv_stub_is_of(binary->stub_kernels[i], function))
            return true;
    }
    return false;
}

static const char *symbol_at(const gv_binary *binary, uint64_t address)
{
    size_t low = 0, high = binary->symbol_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (binary->symbols[middle].start <= address)
            low = middle + 1;
        else
            high = middle;
    }
    if (!low)
        return NULL;
    const function_symbol *found = &binary->symbols[low - 1];
    // Between two functions of a stripped library lie others whose names are gone: no name is better than a wrong one.
    // Functions without a size are written in assembly, and short.
    return address - found->start < (found->size ? found->size : ASSEMBLY_FUNCTION_MAX) ? found->name : NULL;
}

// ---- Lines --------------------------------------------------------------------------------------------------------

static const char *function_of(Dwarf_Die *die)
{
    Dwarf_Attribute attribute;
    const char *name = dwarf_formstring(dwarf_attr_integrate(die, DW_AT_linkage_name, &attribute));
    if (!name)
        name = dwarf_formstring(dwarf_attr_integrate(die, DW_AT_MIPS_linkage_name, &attribute));
    return name ? name : dwarf_formstring(dwarf_attr_integrate(die, DW_AT_name, &attribute));
}

// Where an inlined function was called: a file of its compilation unit and a line.
static void call_site(Dwarf_Die *unit, Dwarf_Die *inlined, gv_binary_place *place)
{
    Dwarf_Attribute attribute;
    Dwarf_Word file = 0, line = 0;
    Dwarf_Files *files = NULL;
    size_t count = 0;
    place->file = NULL;
    place->line = 0;
    if (dwarf_formudata(dwarf_attr(inlined, DW_AT_call_file, &attribute), &file) == 0 &&
        dwarf_formudata(dwarf_attr(inlined, DW_AT_call_line, &attribute), &line) == 0 &&
        dwarf_getsrcfiles(unit, &files, &count) == 0 && file < count) {
        place->file = dwarf_filesrc(files, file, NULL, NULL);
        place->line = line;
    }
}

// Walks from the innermost inlined function outwards to the function that was really called. `place` comes with the
// innermost line and leaves with the frame chosen. Returns false when there is no such information.
static bool choose_inlined(const gv_binary *binary, Dwarf_Die *unit, uint64_t address, gv_binary_place *place)
{
    Dwarf_Die *innermost = NULL, *scopes = NULL;
    int found = dwarf_getscopes(unit, address, &innermost);
    if (found <= 0) {
        free(innermost); // NOLINT: allocated by libdw
        return false;
    }
    // The scopes by address continue with those around an inlined function's definition; those of the innermost entry
    // itself lead to its callers.
    int count = dwarf_getscopes_die(&innermost[0], &scopes);
    free(innermost); // NOLINT
    gv_binary_place here = *place;
    const char *stub = NULL;
    bool chosen = false;
    for (int i = 0; i < count && !chosen; i++) {
        int tag = dwarf_tag(&scopes[i]);
        if (tag != DW_TAG_inlined_subroutine && tag != DW_TAG_subprogram)
            continue;
        here.function = function_of(&scopes[i]);
        bool last = tag == DW_TAG_subprogram;
        if (last || (!gv_frame_is_generated(here.file, here.function) && !is_kernel(binary, here.function) &&
                     !gv_stub_is_of(stub, here.function))) {
            *place = here;
            // Of a function that was really called the symbol table has the whole name; DWARF leaves namespaces out
            // of the names of static functions.
            if (last)
                place->function = NULL;
            chosen = true;
        }
        stub = gv_stub_kernel(here.function);
        if (!last)
            call_site(unit, &scopes[i], &here);
    }
    free(scopes); // NOLINT
    return chosen;
}

gv_binary_place gv_binary_look_up(gv_binary *binary, uint64_t address)
{
    gv_binary_place place = {0};
    if (!address)
        return place;
    // A return address: the call ends just before it, and may be the last instruction of its function.
    uint64_t call = address - 1;
    if (!binary->symbols_read)
        read_symbols(binary);
    Dwarf_Addr bias = 0;
    Dwarf_Die *unit = dwfl_module_addrdie(binary->module, call, &bias);
    Dwfl_Line *line = dwfl_module_getsrc(binary->module, call);
    int number = 0;
    const char *file = line ? dwfl_lineinfo(line, NULL, &number, NULL, NULL, NULL) : NULL;
    if (file && number > 0) {
        place.file = file;
        place.line = (uint64_t)number;
    }
    bool chosen = unit && choose_inlined(binary, unit, call - bias, &place);
    if (!chosen || !place.function)
        place.function = symbol_at(binary, call);
    return place;
}
