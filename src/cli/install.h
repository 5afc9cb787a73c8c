// Where gravel's own libraries are: those that run inside a recorded program.
#ifndef GV_CLI_INSTALL_H
#define GV_CLI_INSTALL_H

#include <limits.h>
#include <stdbool.h>

typedef struct gv_install {
    char record[PATH_MAX];   // libgravel-record.so; "" when not found
    char audit[PATH_MAX];    // libgravel-audit.so
    char soft_dir[PATH_MAX]; // the folder with the software driver's libcuda.so.1
    char tried[2048];        // folders looked at, separated by ", "
} gv_install;

// Looks in GRAVEL_LIBDIR alone when it is set; else beside the executable (a build tree) and in the lib folders next to
// its own (an installation).
void gv_install_find(gv_install *install);

#endif
