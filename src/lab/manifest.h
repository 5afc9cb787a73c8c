// What a trial ran, measured: checksums of the declared files and of what the running processes have mapped, their
// environment, and the state of the source. Taken before the service starts, once it is ready, and after the trial, and
// compared: a trial in which something is not as it was meant, or changed meanwhile, is void.
#ifndef GV_LAB_MANIFEST_H
#define GV_LAB_MANIFEST_H

#include "base/error.h"
#include "lab/plan.h"

#include <jansson.h>
#include <sys/types.h>

enum { GV_SHA256_TEXT = 65 };

// The SHA-256 of a file's bytes or of text, as 64 hexadecimal digits (libsodium's). A file whose inode, size and times
// have not changed since it was last hashed is not read again. GV_ERR_IO when it cannot be read.
gv_status gv_sha256_file(const char *path, char digest[GV_SHA256_TEXT], gv_error *error);
void gv_sha256_text(const char *text, size_t length, char digest[GV_SHA256_TEXT]);

// Forgets what files hashed to; for tests and at the end.
void gv_sha256_forget(void);

// What is meant.
typedef struct gv_meant {
    char *const *environment; // of the service, KEY=VALUE, NULL-terminated
    const gv_words *declared; // names of the variables the plan sets or unsets for the service
    const gv_words *varied;   // those of them that levels set or unset: every process of the service must have them
    const char *const *files; // declared files, absolute, NULL-terminated
    const char *tree;         // the trial's own tree, or NULL
    bool git;                 // it is a git work tree
} gv_meant;

typedef enum gv_stage { GV_STAGE_BEFORE, GV_STAGE_STARTED, GV_STAGE_AFTER, GV_STAGE_COUNT } gv_stage;
const char *gv_stage_name(gv_stage stage);

// Measures. `root` is the keeper (or the unit's main process), `main` the service's own process; 0 before it runs. The
// manifest is a JSON object owned by the caller. A file that is not there is "missing" in it. GV_ERR_MEMORY only.
gv_status gv_manifest_take(const gv_meant *meant, gv_stage stage, pid_t root, pid_t main, json_t **manifest,
                           gv_error *error);

// Compares what was taken so far (later stages may be NULL). GV_OK, or GV_ERR_FORMAT with a sentence that names the
// first difference.
gv_status gv_manifest_compare(const gv_meant *meant, json_t *const manifests[GV_STAGE_COUNT], gv_error *error);

// True for names whose values are kept as checksums only: they may be keys and passwords.
bool gv_is_secret_name(const char *name);

#endif
