#include "cli/outputs.h"

#include "base/memory.h"
#include "trace/reader.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEFAULT_PATTERN "gravel.%p.gravel"

static size_t digits(const char *text)
{
    return strspn(text, "0123456789");
}

// Is `name` one that the recorder makes of the pattern's last part? See GRAVEL_TRACE in gravel-run(1).
static bool name_matches(const char *base, const char *name)
{
    const char *place = strstr(base, "%p");
    if (place) {
        size_t before = (size_t)(place - base);
        if (strncmp(name, base, before) != 0)
            return false;
        size_t number = digits(name + before);
        return number && strcmp(name + before + number, place + 2) == 0;
    }
    size_t length = strlen(base);
    if (strncmp(name, base, length) != 0)
        return false;
    if (!name[length])
        return true;
    size_t number = name[length] == '.' ? digits(name + length + 1) : 0;
    return number && strcmp(name + length + 1 + number, ".gravel") == 0;
}

static gv_status no_memory(gv_error *error)
{
    return gv_fail(error, GV_ERR_MEMORY, "out of memory");
}

// Paths below the current folder are shown without it.
static char *shown_path(const char *path)
{
    char here[PATH_MAX];
    if (getcwd(here, sizeof here)) {
        size_t length = strlen(here);
        if (strncmp(path, here, length) == 0 && path[length] == '/')
            return gv_strdup(path + length + 1);
    }
    return gv_strdup(path);
}

static void free_list(gv_output *items, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        gv_free(items[i].path);
        gv_free(items[i].shown);
    }
    gv_free(items);
}

static gv_status add(gv_output **items, size_t *count, size_t *capacity, const char *folder, const char *name,
                     gv_error *error)
{
    char path[PATH_MAX + NAME_MAX + 2];
    snprintf(path, sizeof path, "%s/%s", strcmp(folder, "/") == 0 ? "" : folder, name);
    struct stat status;
    if (stat(path, &status) != 0 || !S_ISREG(status.st_mode))
        return GV_OK;
    if (!GV_GROW(*items, *capacity, *count + 1))
        return no_memory(error);
    gv_output *added = &(*items)[(*count)++];
    *added = (gv_output){
        .path = gv_strdup(path),
        .shown = shown_path(path),
        .device = status.st_dev,
        .inode = status.st_ino,
        .size = status.st_size,
        .changed = status.st_mtim,
    };
    return added->path && added->shown ? GV_OK : no_memory(error);
}

static gv_status list(const gv_outputs *outputs, gv_output **items, size_t *count, size_t *capacity, gv_error *error)
{
    DIR *folder = opendir(outputs->folder);
    if (!folder)
        return gv_fail(error, GV_ERR_IO, "the folder %s cannot be read: %s", outputs->folder, strerror(errno));
    const char *base = strrchr(outputs->pattern, '/') + 1;
    gv_status status = GV_OK;
    for (struct dirent *entry; status == GV_OK && (entry = readdir(folder));) {
        if (name_matches(base, entry->d_name))
            status = add(items, count, capacity, outputs->folder, entry->d_name, error);
    }
    closedir(folder);
    return status;
}

// Removes what an earlier run left under the very name asked for.
static gv_status clear_place(const char *path, gv_error *error)
{
    struct stat status;
    if (lstat(path, &status) != 0)
        return GV_OK;
    gv_reader *reader = NULL;
    gv_error problem = {0};
    bool ours = S_ISREG(status.st_mode) && status.st_size == 0;
    if (!ours && S_ISREG(status.st_mode)) {
        gv_status opened = gv_reader_open(path, &reader, &problem);
        ours = opened == GV_OK || opened == GV_ERR_VERSION;
        gv_reader_close(reader);
    }
    if (!ours)
        return gv_fail(error, GV_ERR_USAGE, "%s exists and is no gravel trace: remove it, or give another name with -o",
                       path);
    if (unlink(path) != 0)
        return gv_fail(error, GV_ERR_IO, "the older trace %s cannot be removed: %s", path, strerror(errno));
    return GV_OK;
}

gv_status gv_outputs_prepare(gv_outputs *outputs, const char *pattern, gv_error *error)
{
    *outputs = (gv_outputs){0};
    if (!pattern)
        pattern = DEFAULT_PATTERN;
    char here[PATH_MAX] = "";
    if (pattern[0] != '/' && !getcwd(here, sizeof here))
        return gv_fail(error, GV_ERR_IO, "the current folder is not known: %s", strerror(errno));
    // Room for a process id in place of %p, or behind the name.
    int length = snprintf(outputs->pattern, sizeof outputs->pattern - 32, "%s%s%s", here, here[0] ? "/" : "", pattern);
    if (length < 0 || (size_t)length >= sizeof outputs->pattern - 32)
        return gv_fail(error, GV_ERR_USAGE, "the name given with -o is too long");
    char *slash = strrchr(outputs->pattern, '/');
    if (!slash[1])
        return gv_fail(error, GV_ERR_USAGE, "-o %s names a folder; add a file name, such as t.gravel", pattern);
    snprintf(outputs->folder, sizeof outputs->folder, "%.*s",
             (int)(slash == outputs->pattern ? 1 : slash - outputs->pattern), outputs->pattern);
    if (strstr(outputs->folder, "%p"))
        return gv_fail(error, GV_ERR_USAGE, "-o %s: %%p may stand in the file's name, not in a folder's", pattern);
    if (access(outputs->folder, W_OK | X_OK) != 0)
        return gv_fail(error, GV_ERR_IO, "traces cannot be written to the folder %s: %s; give another with -o",
                       outputs->folder, strerror(errno));
    gv_status status = strstr(slash, "%p") ? GV_OK : clear_place(outputs->pattern, error);
    if (status == GV_OK)
        status = list(outputs, &outputs->before, &outputs->before_count, &outputs->before_capacity, error);
    if (status != GV_OK)
        gv_outputs_free(outputs);
    return status;
}

static bool same_file(const gv_output *a, const gv_output *b)
{
    return a->device == b->device && a->inode == b->inode && a->size == b->size &&
           a->changed.tv_sec == b->changed.tv_sec && a->changed.tv_nsec == b->changed.tv_nsec;
}

static int by_name(const void *left, const void *right)
{
    return strverscmp(((const gv_output *)left)->path, ((const gv_output *)right)->path);
}

gv_status gv_outputs_collect(gv_outputs *outputs, gv_error *error)
{
    gv_status status = list(outputs, &outputs->items, &outputs->count, &outputs->capacity, error);
    size_t kept = 0;
    for (size_t i = 0; i < outputs->count; i++) {
        bool old = false;
        for (size_t j = 0; j < outputs->before_count && !old; j++)
            old = same_file(&outputs->items[i], &outputs->before[j]);
        if (old) {
            gv_free(outputs->items[i].path);
            gv_free(outputs->items[i].shown);
        } else {
            outputs->items[kept++] = outputs->items[i];
        }
    }
    outputs->count = kept;
    if (kept)
        qsort(outputs->items, kept, sizeof *outputs->items, by_name);
    return status;
}

void gv_outputs_free(gv_outputs *outputs)
{
    free_list(outputs->before, outputs->before_count);
    free_list(outputs->items, outputs->count);
    outputs->before = outputs->items = NULL;
    outputs->before_count = outputs->count = 0;
}
