#include "stress/transcript.h"

#include "base/memory.h"
#include "stress/secret.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void add_member(gv_string *out, const char *name, const char *text, size_t length)
{
    gv_string_add(out, ",\"%s\":", name);
    gv_add_json_string(out, text, length);
}

static void add_text(gv_string *out, const char *name, const gv_string *text)
{
    add_member(out, name, gv_string_text(text), text->length);
}

static void add_expected(gv_string *out, const gv_expectation *expected)
{
    char *arguments = expected->arguments ? json_dumps(expected->arguments, JSON_COMPACT) : NULL;
    gv_string_add(out, ",\"expected\":{\"call\":");
    if (expected->tool)
        gv_add_json_string(out, expected->tool, strlen(expected->tool));
    else
        gv_string_add(out, "null");
    gv_string_add(out, ",\"arguments\":%s", arguments ? "" : "null");
    if (arguments)
        gv_string_add_bytes(out, arguments, strlen(arguments));
    gv_string_add(out, ",\"text\":");
    if (expected->text)
        gv_add_json_string(out, expected->text, strlen(expected->text));
    else
        gv_string_add(out, "null");
    gv_string_add(out, "}");
    gv_free(arguments);
}

void gv_transcript_add(gv_string *findings, size_t round, const gv_turn *turn, const gv_reply *reply,
                       const gv_judgement *judgement)
{
    gv_string_add(findings, "%s{\"round\":%zu,\"reasons\":[", findings->length ? "," : "", round + 1);
    bool first = true;
    for (unsigned i = 0; i < GV_REASON_COUNT; i++) {
        if (judgement->reasons & GV_REASON_BIT(i)) {
            gv_string_add(findings, "%s\"%s\"", first ? "" : ",", gv_reason_id((gv_reason)i));
            first = false;
        }
    }
    gv_string_add(findings, "]");
    add_member(findings, "detail", judgement->detail, strlen(judgement->detail));
    add_expected(findings, &turn->expected);
    gv_string_add(findings, ",\"reply\":{\"finish_reason\":");
    gv_add_json_string(findings, reply->finish, strlen(reply->finish));
    add_text(findings, "content", &reply->content);
    add_text(findings, "reasoning", &reply->reasoning);
    add_text(findings, "refusal", &reply->refusal);
    gv_string_add(findings, ",\"tool_calls\":[");
    for (size_t i = 0; i < reply->call_count; i++) {
        gv_string_add(findings, "%s{\"id\":", i ? "," : "");
        gv_add_json_string(findings, gv_string_text(&reply->calls[i].id), reply->calls[i].id.length);
        add_text(findings, "name", &reply->calls[i].name);
        add_text(findings, "arguments", &reply->calls[i].arguments);
        gv_string_add(findings, "}");
    }
    gv_string_add(findings, "]}}");
}

gv_status gv_transcript_write(const gv_transcript *transcript, gv_error *error)
{
    gv_string out = {0};
    gv_string_add(&out, "{\"schema\":\"gravel-transcript\",\"version\":1,\"session\":%zu,\"seed\":%" PRIu64,
                  transcript->session, transcript->seed);
    add_member(&out, "scenario", transcript->scenario, strlen(transcript->scenario));
    add_member(&out, "model", transcript->model, strlen(transcript->model));
    add_member(&out, "url", transcript->url, strlen(transcript->url));
    add_member(&out, "request_id", transcript->request_id, strlen(transcript->request_id));
    gv_string_add(&out, ",\"rounds\":[");
    gv_string_add_bytes(&out, gv_string_text(transcript->findings), transcript->findings->length);
    gv_string_add(&out, "],\"messages\":[");
    gv_string_add_bytes(&out, gv_string_text(transcript->messages), transcript->messages->length);
    gv_string_add(&out, "]}\n");
    if (out.failed || transcript->findings->failed || transcript->messages->failed) {
        gv_string_free(&out);
        return gv_fail(error, GV_ERR_MEMORY, "out of memory while a transcript was written");
    }
    gv_redact(out.text, out.length, transcript->key);

    gv_string path = {0};
    gv_string_add(&path, "%s/session-%06zu.json", transcript->folder, transcript->session);
    FILE *file = path.failed ? NULL : fopen(path.text, "w");
    bool written = file && fwrite(out.text, 1, out.length, file) == out.length;
    written = file && fclose(file) == 0 && written;
    gv_status status = GV_OK;
    if (!written)
        status = gv_fail(error, GV_ERR_IO, "%s cannot be written: %s", gv_string_text(&path), strerror(errno));
    gv_string_free(&path);
    gv_string_free(&out);
    return status;
}

gv_status gv_transcripts_prepare(const char *folder, gv_error *error)
{
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return gv_fail(error, GV_ERR_IO, "the folder %s for transcripts cannot be made: %s", folder, strerror(errno));
    DIR *listing = opendir(folder);
    if (!listing)
        return gv_fail(error, GV_ERR_IO, "the folder %s for transcripts cannot be read: %s", folder, strerror(errno));
    for (struct dirent *item; (item = readdir(listing));) {
        unsigned long session;
        int end = 0;
        if (sscanf(item->d_name, "session-%lu.json%n", &session, &end) == 1 && end && !item->d_name[end])
            unlinkat(dirfd(listing), item->d_name, 0);
    }
    closedir(listing);
    return GV_OK;
}
