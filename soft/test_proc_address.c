// cuGetProcAddress: every row of the table, and what is said of names and versions that are not there.
#include "soft/functions.h"
#include "soft/testing.h"

#include <dlfcn.h>

typedef struct row {
    const char *base;
    int version;
    const char *symbol, *per_thread;
} row;

#define ROW_PLAIN(base, version, symbol)                   {#base, version, #symbol, NULL},
#define ROW_WITH_THREAD(base, version, symbol, per_thread) {#base, version, #symbol, #per_thread},
static const row rows[] = {SOFT_FUNCTIONS(ROW_PLAIN, ROW_WITH_THREAD)};
enum { ROWS = sizeof rows / sizeof rows[0] };

static void *look_up(const char *name, int version, cuuint64_t flags, CUdriverProcAddressQueryResult expected)
{
    void *address = &address;
    CUdriverProcAddressQueryResult status = (CUdriverProcAddressQueryResult)77;
    OK(cuGetProcAddress(name, &address, version, flags, &status));
    assert_int_equal(status, expected);
    return address;
}

static void every_row_is_an_exported_symbol(void **state)
{
    for (size_t i = 0; i < ROWS; i++) {
        if (rows[i].version > CUDA_VERSION)
            continue; // the header that the driver was built with may lack its types
        void *symbol = dlsym(RTLD_DEFAULT, rows[i].symbol);
        assert_non_null(symbol);
        assert_ptr_equal(
            look_up(rows[i].base, rows[i].version, CU_GET_PROC_ADDRESS_LEGACY_STREAM, CU_GET_PROC_ADDRESS_SUCCESS),
            symbol);
        void *per_thread = rows[i].per_thread ? dlsym(RTLD_DEFAULT, rows[i].per_thread) : symbol;
        assert_non_null(per_thread);
        assert_ptr_equal(look_up(rows[i].base, rows[i].version, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM,
                                 CU_GET_PROC_ADDRESS_SUCCESS),
                         per_thread);
    }
}

static void variants_of_a_name_are_in_ascending_order(void **state)
{
    for (size_t i = 1; i < ROWS; i++)
        if (!strcmp(rows[i].base, rows[i - 1].base))
            assert_true(rows[i].version > rows[i - 1].version);
        else
            assert_true(strcmp(rows[i].base, rows[i - 1].base) > 0);
}

static void the_newest_variant_of_the_programs_time_is_given(void **state)
{
    assert_ptr_equal(look_up("cuGraphGetEdges", 12020, 0, CU_GET_PROC_ADDRESS_SUCCESS),
                     dlsym(RTLD_DEFAULT, "cuGraphGetEdges"));
    assert_ptr_equal(look_up("cuGraphGetEdges", 13000, 0, CU_GET_PROC_ADDRESS_SUCCESS),
                     dlsym(RTLD_DEFAULT, "cuGraphGetEdges_v2"));
    assert_ptr_equal(look_up("cuStreamGetCaptureInfo", 11060, 0, CU_GET_PROC_ADDRESS_SUCCESS),
                     dlsym(RTLD_DEFAULT, "cuStreamGetCaptureInfo_v2"));
    assert_ptr_equal(look_up("cuStreamGetCaptureInfo", 13000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM,
                             CU_GET_PROC_ADDRESS_SUCCESS),
                     dlsym(RTLD_DEFAULT, "cuStreamGetCaptureInfo_v3_ptsz"));
    assert_ptr_equal(
        look_up("cuMemcpyHtoD", 13000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, CU_GET_PROC_ADDRESS_SUCCESS),
        dlsym(RTLD_DEFAULT, "cuMemcpyHtoD_v2_ptds"));
    // The function finds itself, under both of its versions.
    assert_ptr_equal(look_up("cuGetProcAddress", 11030, 0, CU_GET_PROC_ADDRESS_SUCCESS),
                     dlsym(RTLD_DEFAULT, "cuGetProcAddress"));
    assert_ptr_equal(look_up("cuGetProcAddress", 12000, 0, CU_GET_PROC_ADDRESS_SUCCESS),
                     dlsym(RTLD_DEFAULT, "cuGetProcAddress_v2"));
}

static void what_is_missing_is_null_and_told_apart(void **state)
{
    assert_null(look_up("cuGraphLaunch", 9000, 0, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT));
    assert_null(look_up("cuNoSuchFunction", 13000, 0, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND));
    assert_null(look_up("cuMemAlloc_v2", 13000, 0, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND)); // no base name
    assert_null(look_up("", 13000, 0, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND));
    void *address;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGetProcAddress("cuInit", &address, 99000, 0, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGetProcAddress("cuInit", &address, 13000, 1 << 5, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGetProcAddress(NULL, &address, 13000, 0, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGetProcAddress("cuInit", NULL, 13000, 0, NULL));
}

static void there_are_no_private_tables(void **state)
{
    const void *table = &table;
    CUuuid id = {{1}};
    FAILS(CUDA_ERROR_NOT_FOUND, cuGetExportTable(&table, &id));
    assert_null(table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_is_an_exported_symbol),
        cmocka_unit_test(variants_of_a_name_are_in_ascending_order),
        cmocka_unit_test(the_newest_variant_of_the_programs_time_is_given),
        cmocka_unit_test(what_is_missing_is_null_and_told_apart),
        cmocka_unit_test(there_are_no_private_tables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
