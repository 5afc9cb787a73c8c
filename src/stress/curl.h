// libcurl, loaded when it is first needed: `gravel` is one file that runs in any container, and only `gravel stress`
// and `gravel lab` need the library. The functions have the names that curl's manual gives them, behind `gv_curl.`.
#ifndef GV_STRESS_CURL_H
#define GV_STRESS_CURL_H

#include "base/error.h"

// Without the macros that check the types of curl_easy_setopt's arguments: they name the function itself.
#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>
#undef curl_easy_setopt
#undef curl_easy_getinfo
#undef curl_multi_setopt

#define GV_CURL_FUNCTIONS(X) \
    X(global_init)           \
    X(version_info)          \
    X(easy_init)             \
    X(easy_setopt)           \
    X(easy_getinfo)          \
    X(easy_perform)          \
    X(easy_cleanup)          \
    X(easy_strerror)         \
    X(slist_append)          \
    X(slist_free_all)        \
    X(multi_init)            \
    X(multi_cleanup)         \
    X(multi_setopt)          \
    X(multi_assign)          \
    X(multi_add_handle)      \
    X(multi_remove_handle)   \
    X(multi_socket_action)   \
    X(multi_info_read)       \
    X(multi_strerror)        \
    X(url)                   \
    X(url_set)               \
    X(url_get)               \
    X(url_cleanup)           \
    X(free)

typedef struct gv_curl_functions {
#define GV_CURL_MEMBER(name) __typeof__(&curl_##name) name;
    GV_CURL_FUNCTIONS(GV_CURL_MEMBER)
#undef GV_CURL_MEMBER
} gv_curl_functions;

// Valid after gv_curl_load returned GV_OK.
extern gv_curl_functions gv_curl;

// Loads the library, once in the life of the process. GV_ERR_MISSING, with what to install, when there is none.
gv_status gv_curl_load(gv_error *error);

#endif
