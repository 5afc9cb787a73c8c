// The scan for instructions the Sanitizer does not report, on what nvcc really makes of them.
#include "record/cubin.h"

#include "trace/record.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static const unsigned char *image;
static size_t image_size;

// Maps test_cubin_<name>.cubin.
static const unsigned char *map(const char *name, size_t *size)
{
    char path[4096];
    struct stat status = {0};
    snprintf(path, sizeof path, "%s%s.cubin", GV_TEST_CUBINS, name);
    int file = open(path, O_RDONLY);
    assert_true(file >= 0 && fstat(file, &status) == 0);
    *size = (size_t)status.st_size;
    void *mapped = mmap(NULL, *size, PROT_READ, MAP_PRIVATE, file, 0);
    close(file);
    assert_ptr_not_equal(mapped, MAP_FAILED);
    return mapped;
}

static int load(void **state)
{
    image = map("kernels", &image_size);
    return 0;
}

typedef struct findings {
    const char *wanted;
    unsigned flags, of_module;
    size_t count;
} findings;

static void found(const char *name, unsigned flags, void *user)
{
    findings *all = user;
    all->count++;
    if (!name)
        all->of_module |= flags;
    else if (strcmp(name, all->wanted) == 0)
        all->flags |= flags;
}

static unsigned flags_of(const char *kernel)
{
    findings all = {kernel, 0, 0, 0};
    assert_true(gv_cubin_scan(image, image_size, found, &all));
    assert_int_equal(all.of_module, 0);
    return all.flags;
}

static void what_is_reported_is_not_flagged(void **state)
{
    assert_int_equal(flags_of("plain"), 0);
    assert_int_equal(flags_of("bulk_copy"), 0);
    // Reported too, but what a comparison finds changed may then have been changed atomically.
    const char *const atomics[] = {"atomic",         "atomic_result", "atomic_compare",
                                   "atomic_generic", "atomic_float",  "bulk_reduce"};
    for (size_t i = 0; i < sizeof atomics / sizeof *atomics; i++)
        assert_int_equal(flags_of(atomics[i]), GV_FUNCTION_ATOMIC);
}

static void tensor_copies_are_flagged(void **state)
{
    assert_int_equal(flags_of("tensor_load"), GV_FUNCTION_TENSOR_COPY | GV_FUNCTION_TENSOR_LOAD);
    assert_int_equal(flags_of("tensor_store"), GV_FUNCTION_TENSOR_COPY | GV_FUNCTION_TENSOR_STORE);
    assert_int_equal(flags_of("tensor_reduce"), GV_FUNCTION_TENSOR_COPY | GV_FUNCTION_TENSOR_REDUCE);
}

// Only a kernel that changes a map, or waits for one to be changed, drops it from the cache of maps.
static void changed_tensor_maps_are_told_from_prefetched_ones(void **state)
{
    assert_int_equal(flags_of("tensor_prefetch"), 0);
    assert_int_equal(flags_of("tensor_replace"), GV_FUNCTION_TENSOR_REPLACE);
}

static void textures_surfaces_and_multimem_are_flagged(void **state)
{
    assert_int_equal(flags_of("texture"), GV_FUNCTION_TEXTURE);
    assert_int_equal(flags_of("surface"), GV_FUNCTION_TEXTURE | GV_FUNCTION_SURFACE_STORE);
    assert_int_equal(flags_of("multimem"), GV_FUNCTION_MULTIMEM);
}

// Whoever reads a __constant__ variable cannot be told from its code alone: the module is flagged.
static void a_module_with_constants_is_flagged(void **state)
{
    size_t size = 0;
    const unsigned char *with_constants = map("constant", &size);
    findings all = {"constant", 0, 0, 0};
    assert_true(gv_cubin_scan(with_constants, size, found, &all));
    assert_int_equal(all.of_module, GV_FUNCTION_CONSTANT | GV_FUNCTION_DEVICE_HEAP);
}

typedef struct variables {
    char names[16][32];
    size_t count;
} variables;

static void variable(const char *name, void *user)
{
    variables *all = user;
    assert_true(all->count < 16);
    snprintf(all->names[all->count++], sizeof all->names[0], "%s", name);
}

static bool has(const variables *all, const char *name)
{
    for (size_t i = 0; i < all->count; i++)
        if (strstr(all->names[i], name))
            return true;
    return false;
}

static void variables_are_listed_and_strings_are_not(void **state)
{
    size_t size = 0;
    const unsigned char *with_variables = map("constant", &size);
    variables all = {0};
    assert_true(gv_cubin_variables(with_variables, size, variable, &all));
    assert_int_equal(all.count, 4);
    assert_true(has(&all, "table"));
    assert_true(has(&all, "pointer"));
    assert_true(has(&all, "counter"));
    assert_true(has(&all, "hidden"));
    all.count = 0;
    assert_true(gv_cubin_variables(image, image_size, variable, &all));
    assert_int_equal(all.count, 0);
}

// What cannot be read is not taken for harmless, and no cut or damaged image makes the scan read outside it (ASan).
static void a_damaged_image_is_refused_or_scanned_safely(void **state)
{
    findings all = {"plain", 0, 0, 0};
    assert_false(gv_cubin_scan("not a cubin", 11, found, &all));
    variables none = {0};
    assert_false(gv_cubin_variables("not a cubin", 11, variable, &none));
    assert_false(gv_cubin_scan(image, 0, found, &all));
    assert_false(gv_cubin_scan(image, 63, found, &all));
    for (size_t size = 64; size < image_size; size += 97) {
        unsigned char *cut = malloc(size);
        memcpy(cut, image, size);
        assert_false(gv_cubin_scan(cut, size, found, &all) && size < image_size / 2);
        free(cut);
    }
    unsigned char *damaged = malloc(image_size);
    for (size_t at = 0; at<image_size; at += image_size> 4096 ? 13 : 1) {
        memcpy(damaged, image, image_size);
        damaged[at] ^= 0xff;
        gv_cubin_scan(damaged, image_size, found, &all);
        none.count = 0;
        gv_cubin_variables(damaged, image_size, variable, &none);
    }
    free(damaged);
    size_t size = 0;
    const unsigned char *with_variables = map("constant", &size);
    damaged = malloc(size);
    for (size_t at = 0; at < size; at += 7) {
        memcpy(damaged, with_variables, size);
        damaged[at] ^= 0xff;
        none.count = 0;
        gv_cubin_variables(damaged, size, variable, &none);
    }
    free(damaged);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_reported_is_not_flagged),
        cmocka_unit_test(tensor_copies_are_flagged),
        cmocka_unit_test(changed_tensor_maps_are_told_from_prefetched_ones),
        cmocka_unit_test(textures_surfaces_and_multimem_are_flagged),
        cmocka_unit_test(a_module_with_constants_is_flagged),
        cmocka_unit_test(variables_are_listed_and_strings_are_not),
        cmocka_unit_test(a_damaged_image_is_refused_or_scanned_safely),
    };
    return cmocka_run_group_tests(tests, load, NULL);
}
