// The tree a trial runs in: a work tree of the plan's repository or a copy of its folder, with the trial's changes in
// it. The user's own tree is never touched.
#ifndef GV_LAB_TREE_H
#define GV_LAB_TREE_H

#include "base/error.h"
#include "base/folder.h"
#include "lab/plan.h"

// Makes `folder` (which must not be there) the tree of a trial with these changes; `scratch` is a folder for the
// patches that are put together, and for the output of git. GV_ERR_IO for a failure that may pass, GV_ERR_FORMAT for
// changes that do not fit (a patch that does not apply): trying again is no use.
gv_status gv_tree_make(const gv_plan *plan, gv_change *const *changes, size_t count, const char *folder,
                       const char *scratch, gv_error *error);

// Takes a tree away again, also one that was left half made. Nothing outside `folder` and the repository's list of work
// trees is touched.
gv_status gv_tree_remove(const gv_plan *plan, const char *folder, gv_error *error);

// Removes a folder of the lab's own with everything in it, without following links. GV_OK when it is not there.
gv_status gv_remove_folder(const char *folder, gv_error *error);

// Writes the chosen edges of the plan's fix files to `path` (an empty fix file when none is chosen). `*wanted` says
// whether the plan has fix files at all.
gv_status gv_fix_make(const gv_plan *plan, gv_change *const *changes, size_t count, const char *path, bool *wanted,
                      gv_error *error);

// Runs a program to its end in `directory` with gravel's own environment; its output goes to the file `log`. GV_ERR_IO,
// with the log's last line, when it does not end with exit code 0 within `seconds`.
gv_status gv_run_program(char *const *argv, const char *directory, const char *log, double seconds, gv_error *error);

// The last lines of a file, at most `most` bytes, cut at a line. NULL when there is none. Owned by the caller.
char *gv_file_tail(const char *path, size_t most);

#endif
