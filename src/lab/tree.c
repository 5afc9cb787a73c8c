#include "lab/tree.h"

#include "base/memory.h"
#include "lab/patch.h"
#include "lab/process.h"
#include "report/format.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

extern char **environ;

enum { GIT_SECONDS = 600, TAIL_BYTES = 4000 };

char *gv_file_tail(const char *path, size_t most)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    struct stat state;
    if (file < 0)
        return NULL;
    char *text = NULL;
    if (fstat(file, &state) == 0 && state.st_size > 0 && (text = gv_malloc(most + 1))) {
        off_t from = state.st_size > (off_t)most ? state.st_size - (off_t)most : 0;
        ssize_t got = pread(file, text, most, from);
        text[got > 0 ? got : 0] = '\0';
        const char *line = from > 0 ? strchr(text, '\n') : NULL;
        if (line)
            memmove(text, line + 1, strlen(line + 1) + 1);
    }
    close(file);
    return text;
}

gv_status gv_run_program(char *const *argv, const char *directory, const char *log, double seconds, gv_error *error)
{
    gv_child child;
    gv_spawn spawn = {.argv = argv, .environment = environ, .directory = directory, .output = log, .errors = log};
    gv_status status = gv_child_start(&spawn, &child, error);
    if (status != GV_OK)
        return status;
    bool ended = gv_child_wait(&child, seconds, -1);
    gv_child_stop(&child, SIGTERM, 1);
    if (ended && child.status == 0)
        return GV_OK;
    char *tail = gv_file_tail(log, 300);
    // The last line says most.
    char *last = tail;
    if (tail) {
        while (*tail && tail[strlen(tail) - 1] == '\n')
            tail[strlen(tail) - 1] = '\0';
        char *line = strrchr(tail, '\n');
        last = line ? line + 1 : tail;
    }
    status = ended ? gv_fail(error, GV_ERR_IO, "%s %s ended with %s: %s", argv[0], argv[1] ? argv[1] : "",
                             gv_child_status_text(child.status), last ? last : "it said nothing")
                   : gv_fail(error, GV_ERR_IO, "%s did not end within %g s", argv[0], seconds);
    gv_free(tail);
    return status;
}

// ---- Folders ------------------------------------------------------------------------------------------------------

static int remove_one(const char *path, const struct stat *state, int kind, struct FTW *position)
{
    // A folder that may not be read or searched is the lab's own all the same.
    if (kind == FTW_DNR)
        chmod(path, 0700);
    return remove(path) == 0 || errno == ENOENT ? 0 : errno;
}

gv_status gv_remove_folder(const char *folder, gv_error *error)
{
    struct stat state;
    if (lstat(folder, &state) != 0 && errno == ENOENT)
        return GV_OK;
    int failed = nftw(folder, remove_one, 64, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
    if (failed)
        return gv_fail(error, GV_ERR_IO, "the folder %s cannot be removed: %s", folder,
                       strerror(failed > 0 ? failed : errno));
    return GV_OK;
}

// ---- Trees --------------------------------------------------------------------------------------------------------

static gv_status git(const char *scratch, const char *directory, char *const *words, gv_error *error)
{
    gv_string log = {0};
    gv_string_add(&log, "%s/git.log", scratch);
    gv_status status = log.failed ? gv_fail(error, GV_ERR_MEMORY, "out of memory")
                                  : gv_run_program(words, directory, log.text, GIT_SECONDS, error);
    gv_string_free(&log);
    return status;
}

static gv_status copy_file(const char *from, const char *to, gv_error *error)
{
    char *text;
    size_t length;
    struct stat state;
    gv_status status = gv_read_whole(from, SIZE_MAX / 2, &text, &length, error);
    if (status != GV_OK)
        return status;
    gv_string folder = {0};
    gv_string_add(&folder, "%.*s", (int)(strrchr(to, '/') - to), to);
    status = folder.failed ? gv_fail(error, GV_ERR_MEMORY, "out of memory") : gv_make_folder(folder.text, error);
    gv_string_free(&folder);
    // A new file in the old one's place: what is there may be a link to something outside the tree.
    if (status == GV_OK && unlink(to) != 0 && errno != ENOENT)
        status = gv_fail(error, GV_ERR_IO, "%s cannot be replaced: %s", to, strerror(errno));
    FILE *out = status == GV_OK ? fopen(to, "wbe") : NULL;
    if (status == GV_OK && (!out || fwrite(text, 1, length, out) != length || fclose(out) != 0))
        status = gv_fail(error, GV_ERR_IO, "%s cannot be written: %s", to, strerror(errno));
    if (status == GV_OK && stat(from, &state) == 0)
        chmod(to, state.st_mode & 0777);
    gv_free(text);
    return status;
}

// The parts of one file that the changes choose: `whole` when some change takes all of it.
typedef struct selection {
    bool *keep;
    size_t count;
    bool any;
} selection;

static gv_status select_parts(gv_change *const *changes, size_t count, const char *path, bool fix, selection *chosen,
                              gv_error *error)
{
    *chosen = (selection){0};
    gv_status status = fix ? gv_fix_edges(path, &chosen->count, error) : gv_patch_hunks(path, &chosen->count, error);
    if (status != GV_OK)
        return status;
    chosen->keep = gv_calloc(chosen->count, sizeof *chosen->keep);
    if (!chosen->keep)
        return gv_fail(error, GV_ERR_MEMORY, "out of memory");
    for (size_t i = 0; i < count; i++) {
        const char *own = fix ? changes[i]->fix : changes[i]->patch;
        long part = fix ? changes[i]->edge : changes[i]->hunk;
        if (!own || strcmp(own, path) != 0)
            continue;
        chosen->any = true;
        for (size_t k = 0; k < chosen->count; k++)
            chosen->keep[k] = chosen->keep[k] || part < 0 || (size_t)part == k;
    }
    return GV_OK;
}

// Whether an earlier change of the list names the same patch, which is then applied already.
static bool named_before(gv_change *const *changes, size_t i)
{
    for (size_t j = 0; j < i; j++) {
        if (changes[j]->patch && strcmp(changes[j]->patch, changes[i]->patch) == 0)
            return true;
    }
    return false;
}

static gv_status apply_patch(gv_change *const *changes, size_t count, size_t i, const char *folder, const char *scratch,
                             gv_error *error)
{
    selection chosen;
    gv_status status = select_parts(changes, count, changes[i]->patch, false, &chosen, error);
    gv_string part = {0};
    gv_string_add(&part, "%s/change-%zu.patch", scratch, i + 1);
    if (status == GV_OK)
        status = part.failed ? gv_fail(error, GV_ERR_MEMORY, "out of memory")
                             : gv_patch_select(changes[i]->patch, chosen.keep, chosen.count, part.text, error);
    // `git apply` needs no repository; one that holds the lab's folder must not be taken for the tree's.
    char *words[] = {"env", "GIT_CEILING_DIRECTORIES=/", "git", "apply", "--whitespace=nowarn", part.text, NULL};
    if (status == GV_OK && git(scratch, folder, words, error) != GV_OK) {
        gv_error_prefix(error, "the patch of \"%s\" does not fit", changes[i]->name);
        status = error ? (error->status = GV_ERR_FORMAT) : GV_ERR_FORMAT;
    }
    gv_free(chosen.keep);
    gv_string_free(&part);
    return status;
}

static gv_status make_source(const gv_plan *plan, gv_change *const *changes, size_t count, const char *folder,
                             const char *scratch, gv_error *error)
{
    const gv_service *service = &plan->service;
    if (service->copy) {
        char *words[] = {"cp", "-a", "--reflink=auto", (char *)service->copy, (char *)folder, NULL};
        return git(scratch, NULL, words, error);
    }
    const char *revision = service->revision;
    for (size_t i = 0; i < count; i++)
        revision = changes[i]->revision ? changes[i]->revision : revision;
    char *words[] = {"git",     "-C",       (char *)service->git, "worktree",       "add", "--quiet",
                     "--force", "--detach", (char *)folder,       (char *)revision, NULL};
    return git(scratch, NULL, words, error);
}

gv_status gv_tree_make(const gv_plan *plan, gv_change *const *changes, size_t count, const char *folder,
                       const char *scratch, gv_error *error)
{
    gv_status status = make_source(plan, changes, count, folder, scratch, error);
    for (size_t i = 0; status == GV_OK && i < count; i++) {
        if (changes[i]->patch && !named_before(changes, i))
            status = apply_patch(changes, count, i, folder, scratch, error);
        for (size_t f = 0; status == GV_OK && f < changes[i]->files.count; f++) {
            gv_string to = {0};
            gv_string_add(&to, "%s/%s", folder, changes[i]->files.items[f].name);
            status = to.failed ? gv_fail(error, GV_ERR_MEMORY, "out of memory")
                               : copy_file(changes[i]->files.items[f].value, to.text, error);
            gv_string_free(&to);
        }
    }
    return status;
}

gv_status gv_tree_remove(const gv_plan *plan, const char *folder, gv_error *error)
{
    gv_status status = gv_remove_folder(folder, error);
    if (status == GV_OK && plan->service.git) {
        // Takes those out of the repository's list whose folder is gone, which is what the user would do too.
        char *words[] = {"git", "-C", (char *)plan->service.git, "worktree", "prune", NULL};
        status = gv_run_program(words, NULL, "/dev/null", GIT_SECONDS, error);
    }
    return status;
}

// ---- Fix files ----------------------------------------------------------------------------------------------------

// The one fix file of the plan, or NULL. Edges of two traces cannot stand in one file.
static const char *fix_of(const gv_plan *plan)
{
    for (size_t f = 0; f < plan->factor_count; f++) {
        for (size_t l = 0; l < plan->factors[f].count; l++) {
            if (plan->factors[f].levels[l].fix)
                return plan->factors[f].levels[l].fix;
        }
    }
    for (size_t i = 0; i < plan->minimise.count; i++) {
        if (plan->minimise.changes[i].fix)
            return plan->minimise.changes[i].fix;
    }
    return NULL;
}

gv_status gv_fix_make(const gv_plan *plan, gv_change *const *changes, size_t count, const char *path, bool *wanted,
                      gv_error *error)
{
    const char *fix = fix_of(plan);
    *wanted = fix != NULL;
    for (size_t i = 0; i < count && fix; i++) {
        if (changes[i]->fix)
            fix = changes[i]->fix;
    }
    if (!fix)
        return GV_OK;
    for (size_t i = 0; i < count; i++) {
        if (changes[i]->fix && strcmp(changes[i]->fix, fix) != 0)
            return gv_fail(error, GV_ERR_FORMAT, "two fix files are chosen at once, %s and %s; a service takes one",
                           changes[i]->fix, fix);
    }
    selection chosen;
    gv_status status = select_parts(changes, count, fix, true, &chosen, error);
    if (status == GV_OK)
        status = gv_fix_select(fix, chosen.keep, chosen.count, path, error);
    gv_free(chosen.keep);
    return status;
}
