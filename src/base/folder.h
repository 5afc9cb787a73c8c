// Folders that gravel writes into.
#ifndef GV_BASE_FOLDER_H
#define GV_BASE_FOLDER_H

#include "base/error.h"

// Makes a folder and those above it, as `mkdir -p` does; one that is there is fine. GV_ERR_IO names the folder that
// could not be made.
gv_status gv_make_folder(const char *folder, gv_error *error);

#endif
