#include "base/folder.h"

#include "base/memory.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

gv_status gv_make_folder(const char *folder, gv_error *error)
{
    char *path = gv_strdup(folder);
    if (!path)
        return gv_fail(error, GV_ERR_MEMORY, "out of memory");
    gv_status status = GV_OK;
    for (char *next = path + 1; status == GV_OK; next++) {
        char end = *next;
        if (end != '/' && end != '\0')
            continue;
        *next = '\0';
        if (mkdir(path, 0777) != 0 && errno != EEXIST)
            status = gv_fail(error, GV_ERR_IO, "the folder %s cannot be made: %s", path, strerror(errno));
        if (end == '\0')
            break;
        *next = end;
    }
    gv_free(path);
    return status;
}
