#include "lab/manifest.h"

#include "base/memory.h"
#include "lab/patch.h"
#include "lab/process.h"
#include "report/format.h"

#include <ctype.h>
#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *gv_stage_name(gv_stage stage)
{
    static const char *const names[] = {"before", "started", "after"};
    return (unsigned)stage < GV_STAGE_COUNT ? names[stage] : "?";
}

// ---- Checksums ----------------------------------------------------------------------------------------------------

static void to_text(const unsigned char *digest, char text[GV_SHA256_TEXT])
{
    sodium_bin2hex(text, GV_SHA256_TEXT, digest, crypto_hash_sha256_BYTES);
}

void gv_sha256_text(const char *text, size_t length, char digest[GV_SHA256_TEXT])
{
    unsigned char bytes[crypto_hash_sha256_BYTES];
    crypto_hash_sha256(bytes, (const unsigned char *)text, length);
    to_text(bytes, digest);
}

// A service maps gigabytes of libraries that do not change between trials.
typedef struct known_file {
    char *path;
    struct stat state;
    char digest[GV_SHA256_TEXT];
} known_file;

static known_file *known;
static size_t known_count, known_capacity;

static bool same_state(const struct stat *a, const struct stat *b)
{
    // The time of the last change of the inode cannot be set back, unlike that of the content.
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec &&
           a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

void gv_sha256_forget(void)
{
    for (size_t i = 0; i < known_count; i++)
        gv_free(known[i].path);
    gv_free(known);
    known = NULL;
    known_count = known_capacity = 0;
}

static gv_status hash_file(const char *path, char digest[GV_SHA256_TEXT], struct stat *state, gv_error *error)
{
    FILE *file = fopen(path, "rbe");
    if (!file)
        return gv_fail(error, GV_ERR_IO, "%s cannot be read: %s", path, strerror(errno));
    crypto_hash_sha256_state hash;
    crypto_hash_sha256_init(&hash);
    unsigned char buffer[65536];
    size_t got;
    // The state before the first byte is read: a change meanwhile shows as another state the next time.
    bool failed = fstat(fileno(file), state) != 0;
    while (!failed && (got = fread(buffer, 1, sizeof buffer, file)) > 0)
        crypto_hash_sha256_update(&hash, buffer, got);
    failed = failed || ferror(file);
    int number = errno;
    fclose(file);
    if (failed)
        return gv_fail(error, GV_ERR_IO, "%s cannot be read: %s", path, strerror(number));
    unsigned char bytes[crypto_hash_sha256_BYTES];
    crypto_hash_sha256_final(&hash, bytes);
    to_text(bytes, digest);
    return GV_OK;
}

gv_status gv_sha256_file(const char *path, char digest[GV_SHA256_TEXT], gv_error *error)
{
    struct stat state;
    known_file *entry = NULL;
    for (size_t i = 0; i < known_count && !entry; i++)
        entry = strcmp(known[i].path, path) == 0 ? &known[i] : NULL;
    if (entry && stat(path, &state) == 0 && same_state(&state, &entry->state)) {
        memcpy(digest, entry->digest, GV_SHA256_TEXT);
        return GV_OK;
    }
    gv_status status = hash_file(path, digest, &state, error);
    if (status != GV_OK)
        return status;
    if (!entry && GV_GROW(known, known_capacity, known_count + 1)) {
        char *copy = gv_strdup(path);
        if (copy) {
            entry = &known[known_count++];
            entry->path = copy;
        }
    }
    if (entry) {
        entry->state = state;
        memcpy(entry->digest, digest, GV_SHA256_TEXT);
    }
    return GV_OK;
}

bool gv_is_secret_name(const char *name)
{
    static const char *const words[] = {"KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "AUTH"};
    char upper[256];
    size_t i = 0;
    for (; name[i] && i < sizeof upper - 1; i++)
        upper[i] = (char)toupper((unsigned char)name[i]);
    upper[i] = '\0';
    for (size_t w = 0; w < sizeof words / sizeof *words; w++) {
        if (strstr(upper, words[w]))
            return true;
    }
    return false;
}

// ---- Taking -------------------------------------------------------------------------------------------------------

// A file by its checksum, or why it has none.
static void add_file(json_t *files, const char *path)
{
    char digest[GV_SHA256_TEXT];
    gv_error error = {0};
    if (json_object_get(files, path))
        return;
    bool read = gv_sha256_file(path, digest, &error) == GV_OK;
    json_object_set_new_nocheck(files, path,
                                json_string(read                      ? digest
                                            : access(path, F_OK) != 0 ? "missing"
                                                                      : "unreadable"));
}

static void add_setting(json_t *settings, const char *name, const char *value)
{
    char digest[GV_SHA256_TEXT + 8] = "sha256:";
    if (gv_is_secret_name(name)) {
        gv_sha256_text(value, strlen(value), digest + 7);
        value = digest;
    }
    // Values that are not UTF-8 are kept as checksums too: JSON cannot hold them.
    json_t *text = json_string(value);
    if (!text) {
        gv_sha256_text(value, strlen(value), digest + 7);
        text = json_string(digest);
    }
    json_object_set_new_nocheck(settings, name, text);
}

static json_t *meant_environment(const gv_meant *meant)
{
    json_t *settings = json_object();
    for (size_t i = 0; meant->environment[i]; i++) {
        const char *equals = strchr(meant->environment[i], '=');
        char name[256];
        snprintf(name, sizeof name, "%.*s", (int)(equals - meant->environment[i]), meant->environment[i]);
        add_setting(settings, name, equals + 1);
    }
    return settings;
}

// What git says, as text; NULL where it fails.
static char *ask_git(const char *tree, const char *arguments)
{
    gv_string command = {0}, out = {0};
    gv_string_add(&command, "cd \"$GV_TREE\" && git %s 2>/dev/null", arguments);
    setenv("GV_TREE", tree, 1);
    FILE *pipe = command.failed ? NULL : popen(command.text, "re");
    unsetenv("GV_TREE");
    char buffer[4096];
    size_t got;
    while (pipe && (got = fread(buffer, 1, sizeof buffer, pipe)) > 0)
        gv_string_add_bytes(&out, buffer, got);
    bool good = pipe && pclose(pipe) == 0 && !out.failed;
    gv_string_free(&command);
    if (!good || !out.text) {
        gv_string_free(&out);
        return good ? gv_strdup("") : NULL;
    }
    return out.text;
}

static json_t *git_state(const char *tree)
{
    json_t *state = json_object();
    static const char *const questions[][2] = {
        {"revision", "rev-parse HEAD"},
        {"changes", "diff HEAD --binary"},
        {"status", "status --porcelain=v1 --untracked-files=no"},
    };
    for (size_t i = 0; i < sizeof questions / sizeof *questions; i++) {
        char *answer = ask_git(tree, questions[i][1]), digest[GV_SHA256_TEXT];
        if (answer && i > 0)
            gv_sha256_text(answer, strlen(answer), digest);
        else if (answer)
            snprintf(digest, sizeof digest, "%.*s", (int)strcspn(answer, "\n"), answer);
        json_object_set_new_nocheck(state, questions[i][0], answer ? json_string(digest) : json_null());
        gv_free(answer);
    }
    return state;
}

// A line of /proc/PID/maps: a file that is mapped there.
static void add_mapping(const char *line, json_t *found)
{
    char mode[8], path[4096];
    unsigned long long inode;
    int at = 0;
    if (sscanf(line, "%*x-%*x %7s %*x %*x:%*x %llu %n", mode, &inode, &at) != 2 || inode == 0 || line[at] != '/')
        return;
    snprintf(path, sizeof path, "%.*s", (int)strcspn(line + at, "\n"), line + at);
    if (strncmp(path, "/dev/", 5) == 0 || strncmp(path, "/memfd:", 7) == 0 || strncmp(path, "/SYSV", 5) == 0)
        return;
    json_t *mapped = json_object_get(found, "mapped"), *data = json_object_get(found, "data");
    // The inode alone: on layered file systems the device in this line is that of a layer.
    struct stat state;
    const char *deleted = strstr(path, " (deleted)");
    if ((deleted && deleted[10] == '\0') || stat(path, &state) != 0 || state.st_ino != inode) {
        if (strchr(mode, 'x'))
            json_object_set_new_nocheck(json_object_get(found, "replaced"), path, json_true());
        return;
    }
    // Code by its bytes. Data may be a model's weights, many gigabytes, or a file the service writes: its size is kept,
    // and nothing is concluded from it.
    if (strchr(mode, 'x')) {
        json_object_del(data, path);
        add_file(mapped, path);
    } else if (!json_object_get(mapped, path)) {
        json_object_set_new_nocheck(data, path, json_integer(state.st_size));
    }
}

static void add_mappings(pid_t pid, json_t *found)
{
    char path[64], line[8192];
    snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    FILE *maps = fopen(path, "re");
    while (maps && fgets(line, sizeof line, maps))
        add_mapping(line, found);
    if (maps)
        fclose(maps);
}

// A process's environment as it was passed to it. Programs that set their title (SGLang's and vLLM's workers do) write
// over it: NULL when it does not look like one.
static json_t *read_environment(pid_t pid)
{
    char path[64], *text;
    size_t length;
    snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
    if (gv_read_whole(path, 4 << 20, &text, &length, NULL) != GV_OK)
        return NULL;
    json_t *settings = json_object();
    for (size_t at = 0; at < length && settings; at += strlen(text + at) + 1) {
        char *entry = text + at, *equals = strchr(entry, '=');
        if (!equals || equals == entry) {
            json_decref(settings);
            settings = NULL;
        } else {
            *equals = '\0';
            // Equal values give equal texts, whether kept or hashed; that is all the comparison needs.
            if (!json_object_get(settings, entry))
                add_setting(settings, entry, equals + 1);
            *equals = '=';
        }
    }
    gv_free(text);
    if (settings && json_object_size(settings) == 0) {
        json_decref(settings);
        settings = NULL;
    }
    return settings;
}

static json_t *process_name(pid_t pid)
{
    char path[64], target[4096];
    snprintf(path, sizeof path, "/proc/%d/exe", (int)pid);
    ssize_t length = readlink(path, target, sizeof target - 1);
    return length > 0 ? json_stringn(target, (size_t)length) : json_null();
}

// The processes of the service, without their numbers: two runs of one service give one manifest.
static json_t *take_processes(const gv_meant *meant, pid_t root, pid_t main, json_t *found)
{
    enum { MOST = 2048 };
    pid_t *pids = gv_calloc(MOST, sizeof *pids);
    json_t *list = json_array();
    size_t count = pids ? gv_process_tree(root, pids, MOST) : 0;
    if (pids && root == main && count < MOST)
        pids[count++] = main;
    for (size_t i = 0; i < count; i++) {
        json_t *environment = read_environment(pids[i]), *process = json_object();
        json_object_set_new(process, "program", process_name(pids[i]));
        add_mappings(pids[i], found);
        if (!environment) {
            json_object_set_new(process, "environment", json_null());
        } else if (pids[i] == main) {
            json_object_set_new(process, "main", json_true());
            json_object_set(process, "environment", environment);
        } else {
            json_t *varied = json_object();
            for (size_t v = 0; v < meant->varied->count; v++) {
                json_t *value = json_object_get(environment, meant->varied->items[v]);
                json_object_set(varied, meant->varied->items[v], value ? value : json_null());
            }
            json_object_set_new(process, "environment", varied);
        }
        json_decref(environment);
        json_array_append_new(list, process);
    }
    gv_free(pids);
    return list;
}

gv_status gv_manifest_take(const gv_meant *meant, gv_stage stage, pid_t root, pid_t main, json_t **result,
                           gv_error *error)
{
    json_t *manifest = json_object(), *files = json_object();
    for (size_t i = 0; meant->files[i]; i++)
        add_file(files, meant->files[i]);
    json_object_set_new(manifest, "stage", json_string(gv_stage_name(stage)));
    json_object_set_new(manifest, "files", files);
    if (stage == GV_STAGE_BEFORE)
        json_object_set_new(manifest, "environment", meant_environment(meant));
    if (meant->git)
        json_object_set_new(manifest, "git", git_state(meant->tree));
    if (root) {
        json_object_set_new(manifest, "mapped", json_object());
        json_object_set_new(manifest, "data", json_object());
        json_object_set_new(manifest, "replaced", json_object());
        json_object_set_new(manifest, "processes", take_processes(meant, root, main, manifest));
    }
    *result = manifest;
    return manifest && files ? GV_OK : gv_fail(error, GV_ERR_MEMORY, "out of memory for a manifest");
}

// ---- Comparing ----------------------------------------------------------------------------------------------------

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "not there";
}

// Every member of `before` that `after` has too must be the same.
static gv_status compare_members(const json_t *before, const json_t *after, const char *what, bool all, gv_error *error)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)before, key, value)
    {
        const json_t *other = json_object_get(after, key);
        if ((other || all) && !json_equal(value, (json_t *)other))
            return gv_fail(error, GV_ERR_FORMAT, "%s %s changed while the trial ran: it was %.80s and then %.80s", what,
                           key, text_of(before, key), text_of(after, key));
    }
    return GV_OK;
}

// The variables in `names` must be as meant: set to that value, or not set.
static gv_status compare_environment(const gv_words *names, const json_t *environment, const json_t *process,
                                     gv_error *error)
{
    const json_t *seen = json_object_get(process, "environment");
    bool main = json_is_true(json_object_get(process, "main"));
    for (size_t i = 0; json_is_object(seen) && i < names->count; i++) {
        const char *name = names->items[i];
        json_t *wanted = json_object_get(environment, name), *other = json_object_get(seen, name);
        bool same = wanted ? json_equal(wanted, other) : !other || json_is_null(other);
        if (!same)
            return gv_fail(error, GV_ERR_FORMAT, "%s%s has %s=%.80s, and %.80s was meant", text_of(process, "program"),
                           main ? ", the service," : ", a process of the service,", name, text_of(seen, name),
                           text_of(environment, name));
    }
    return GV_OK;
}

static gv_status compare_started(const gv_meant *meant, const json_t *before, const json_t *started, gv_error *error)
{
    const json_t *processes = json_object_get(started, "processes");
    size_t index;
    json_t *process;
    json_array_foreach((json_t *)processes, index, process)
    {
        const gv_words *names = json_is_true(json_object_get(process, "main")) ? meant->declared : meant->varied;
        gv_status status = compare_environment(names, json_object_get(before, "environment"), process, error);
        if (status != GV_OK)
            return status;
    }
    const char *path = json_object_iter_key(json_object_iter(json_object_get(started, "replaced")));
    if (path)
        return gv_fail(error, GV_ERR_FORMAT, "the service runs code of %s, which is no longer the file of that name",
                       path);
    // What is mapped and was declared must be what was checked before.
    return compare_members(json_object_get(before, "files"), json_object_get(started, "mapped"), "the file", false,
                           error);
}

gv_status gv_manifest_compare(const gv_meant *meant, json_t *const manifests[GV_STAGE_COUNT], gv_error *error)
{
    const json_t *before = manifests[GV_STAGE_BEFORE];
    const char *path;
    json_t *value;
    json_object_foreach(json_object_get(before, "files"), path, value)
    {
        const char *text = json_string_value(value);
        if (text && (strcmp(text, "missing") == 0 || strcmp(text, "unreadable") == 0))
            return gv_fail(error, GV_ERR_FORMAT, "the declared file %s is %s", path, text);
    }
    gv_status status = GV_OK;
    for (int stage = GV_STAGE_STARTED; status == GV_OK && stage < GV_STAGE_COUNT; stage++) {
        const json_t *later = manifests[stage];
        if (!later)
            continue;
        status =
            compare_members(json_object_get(before, "files"), json_object_get(later, "files"), "the file", true, error);
        if (status == GV_OK && meant->git)
            status = compare_members(json_object_get(before, "git"), json_object_get(later, "git"), "the git state's",
                                     true, error);
        if (status == GV_OK)
            status = compare_started(meant, before, later, error);
    }
    if (status == GV_OK && manifests[GV_STAGE_STARTED] && manifests[GV_STAGE_AFTER])
        status = compare_members(json_object_get(manifests[GV_STAGE_STARTED], "mapped"),
                                 json_object_get(manifests[GV_STAGE_AFTER], "mapped"), "the mapped file", false, error);
    return status;
}
