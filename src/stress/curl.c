#include "stress/curl.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

gv_curl_functions gv_curl;

gv_status gv_curl_load(gv_error *error)
{
    // Debian and most distributions have the first; the others are the same library over another TLS.
    static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4", "libcurl-nss.so.4"};
    static void *library;
    if (library)
        return GV_OK;
    void *opened = NULL;
    for (size_t i = 0; !opened && i < sizeof names / sizeof *names; i++)
        opened = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!opened)
        return gv_fail(error, GV_ERR_MISSING,
                       "libcurl was not found (libcurl.so.4), and `gravel stress` and `gravel lab` send their requests "
                       "with it; install "
                       "it, on Debian and Ubuntu with `apt-get install libcurl4`");
    const char *missing = NULL;
    void *symbol;
#define FIND(name)                         \
    symbol = dlsym(opened, "curl_" #name); \
    if (!symbol)                           \
        missing = "curl_" #name;           \
    memcpy(&gv_curl.name, &symbol, sizeof symbol);
    GV_CURL_FUNCTIONS(FIND)
#undef FIND
    if (missing)
        return gv_fail(error, GV_ERR_MISSING, "the libcurl that was found has no %s; install libcurl 7.62 or later",
                       missing);
    if (gv_curl.global_init(CURL_GLOBAL_DEFAULT) != 0)
        return gv_fail(error, GV_ERR_MEMORY, "libcurl could not be initialised; there is hardly any memory left");
    library = opened;
    return GV_OK;
}
