// The live memory of a context as regions of a search: what the hooks have seen allocated, and the variables of
// modules. Nothing may be read on the device that it cannot read: that would be the end of the program's context.
#include "record/opaque.h"

#include "base/memory.h"
#include "record/driver.h"
#include "record/ids.h"
#include "record/reach.h"

// How the device gets at memory: not at all, as others do too, alone, or nobody knows.
enum access { ACCESS_NONE, ACCESS_SHARED, ACCESS_OWN, ACCESS_UNKNOWN };

// What the driver says of an address. *device_address is where kernels see it.
static enum access access_to(uint64_t address, uint64_t *device_address)
{
    unsigned type = 0, managed = 0, flags = 0;
    int ordinal = -1;
    CUdevice device = 0;
    CUdeviceptr seen = address;
    *device_address = address;
    if (gv_cuda.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) != CUDA_SUCCESS)
        return ACCESS_UNKNOWN;
    if (type == CU_MEMORYTYPE_HOST) {
        // Registered without being mapped, it has no address that kernels could use.
        if (gv_cuda.cuPointerGetAttribute(&seen, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, address) != CUDA_SUCCESS || !seen)
            return ACCESS_NONE;
        *device_address = seen;
        return ACCESS_SHARED;
    }
    gv_cuda.cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address);
    if (managed)
        return ACCESS_SHARED;
    bool here = gv_cuda.cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address) == CUDA_SUCCESS &&
                gv_cuda.cuCtxGetDevice(&device) == CUDA_SUCCESS && ordinal == (int)device;
    if (gv_cuda.cuPointerGetAttribute(&flags, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, address) != CUDA_SUCCESS)
        return ACCESS_UNKNOWN;
    if (!(flags & CU_MEM_ACCESS_FLAGS_PROT_READ))
        return ACCESS_NONE;
    // Memory of another device is never read here: a wrong answer about it would be the end of the context.
    return here ? ACCESS_OWN : ACCESS_UNKNOWN;
}

static bool add_life(gv_reach *reach, const gv_live *life)
{
    uint64_t address = life->address, size = life->size;
    unsigned flags = 0;
    enum access access = access_to(life->address, &address);
    // A life whose end was not seen may have been followed by a shorter one.
    if (life->kind == GV_ALLOCATION_DEVICE || life->kind == GV_ALLOCATION_ASYNC) {
        CUdeviceptr base = 0;
        size_t whole = 0;
        if (gv_cuda.cuMemGetAddressRange(&base, &whole, life->address) != CUDA_SUCCESS)
            access = ACCESS_UNKNOWN;
        else if (base + whole - life->address < size)
            size = base + whole - life->address;
    }
    switch (access) {
    case ACCESS_NONE: return true; // nor can a kernel get at it
    case ACCESS_SHARED: flags = GV_REGION_SHARED; break;
    case ACCESS_UNKNOWN: flags = GV_REGION_SHARED | GV_REGION_UNREADABLE; break;
    case ACCESS_OWN: break;
    }
    if (life->exported || life->kind == GV_ALLOCATION_IMPORTED)
        flags |= GV_REGION_SHARED;
    if (life->kind == GV_ALLOCATION_MAPPED)
        flags |= GV_REGION_PART;
    return gv_reach_add(reach, address, address + size, flags, NULL);
}

bool gv_opaque_list_memory(gv_reach *reach, CUcontext context, bool *device_heap)
{
    gv_live *lives = NULL;
    size_t count = 0;
    gv_variables variables = {0};
    bool enough = gv_lives(&lives, &count);
    for (size_t i = 0; i < count && enough; i++)
        enough = lives[i].kind == GV_ALLOCATION_GLOBAL || add_life(reach, &lives[i]);
    gv_free(lives);
    enough = enough && gv_source_variables(context, &variables);
    for (size_t i = 0; i < variables.count && enough; i++) {
        const gv_variable *v = &variables.items[i];
        enough = gv_reach_add(reach, v->address, v->address + v->size, 0, v->module);
    }
    for (size_t i = 0; i < variables.unknown_count && enough; i++)
        enough = gv_reach_add_unknown(reach, variables.unknown[i]);
    *device_heap = variables.heap;
    gv_variables_free(&variables);
    return enough;
}

bool gv_opaque_look_up(uint64_t address, gv_range *memory, unsigned *flags, void *user)
{
    CUdeviceptr base = 0;
    size_t size = 0;
    uint64_t seen;
    if (gv_cuda.cuMemGetAddressRange(&base, &size, address) != CUDA_SUCCESS || address - base >= size ||
        gv_compare_owns(base))
        return false;
    *memory = (gv_range){base, base + size};
    *flags = 0;
    switch (access_to(address, &seen)) {
    case ACCESS_NONE: return false;
    case ACCESS_SHARED: *flags = GV_REGION_SHARED; break;
    case ACCESS_UNKNOWN: *flags = GV_REGION_SHARED | GV_REGION_UNREADABLE; break;
    case ACCESS_OWN: *flags = GV_REGION_SHARED; break; // nobody told who else has it
    }
    return true;
}
