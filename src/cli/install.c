#include "cli/install.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Stores "folder/name" in `path` if such a file can be read and `path` is still empty.
static void take(char *path, const char *folder, const char *name)
{
    char candidate[PATH_MAX];
    int length = snprintf(candidate, sizeof candidate, "%s/%s", folder, name);
    if (!path[0] && length > 0 && (size_t)length < sizeof candidate && access(candidate, R_OK) == 0 &&
        !realpath(candidate, path))
        path[0] = '\0';
}

static void look_in(gv_install *install, const char *folder)
{
    char resolved[PATH_MAX];
    if (!realpath(folder, resolved))
        return;
    size_t used = strlen(install->tried);
    snprintf(install->tried + used, sizeof install->tried - used, "%s%s", used ? ", " : "", resolved);
    take(install->record, resolved, "libgravel-record.so");
    take(install->audit, resolved, "libgravel-audit.so");
    char driver[PATH_MAX] = "";
    take(driver, resolved, "soft/libcuda.so.1");
    if (driver[0] && !install->soft_dir[0]) {
        // The folder that is searched for the name, not the one a link in it leads to.
        int length = snprintf(install->soft_dir, sizeof install->soft_dir, "%s/soft", resolved);
        if (length < 0 || (size_t)length >= sizeof install->soft_dir)
            install->soft_dir[0] = '\0';
    }
}

void gv_install_find(gv_install *install)
{
    *install = (gv_install){0};
    const char *chosen = getenv("GRAVEL_LIBDIR");
    if (chosen && *chosen) {
        look_in(install, chosen);
        if (!install->tried[0])
            snprintf(install->tried, sizeof install->tried, "GRAVEL_LIBDIR, %s, which is no folder", chosen);
        return;
    }
    char own[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
    if (length <= 0)
        return;
    own[length] = '\0';
    char *slash = strrchr(own, '/');
    if (slash)
        *slash = '\0';
    static const char *const folders[] = {"", "/../lib", "/../lib/gravel", "/../" GV_INSTALL_LIBDIR,
                                          "/../" GV_INSTALL_LIBDIR "/gravel"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        char folder[PATH_MAX + 64];
        snprintf(folder, sizeof folder, "%s%s", own, folders[i]);
        look_in(install, folder);
    }
}
