#include "lab/http.h"

#include "base/memory.h"
#include "report/format.h"
#include "stress/curl.h"

#include <string.h>

enum { MOST_ANSWER = 4 << 20 };

static size_t take(char *bytes, size_t size, size_t count, void *context)
{
    gv_answer_text *answer = context;
    size_t length = size * count;
    if (answer->length + length > MOST_ANSWER || !GV_GROW(answer->text, answer->capacity, answer->length + length + 1))
        return 0;
    memcpy(answer->text + answer->length, bytes, length);
    answer->length += length;
    answer->text[answer->length] = '\0';
    return length;
}

static int progress(void *context, curl_off_t down_total, curl_off_t down, curl_off_t up_total, curl_off_t up)
{
    const gv_request *request = context;
    return request->give_up && request->give_up(request->context);
}

static struct curl_slist *make_headers(const gv_request *request, bool *failed)
{
    struct curl_slist *list = NULL;
    size_t count = request->headers ? request->headers->count : 0;
    for (size_t i = 0; i <= count; i++) {
        gv_string line = {0};
        if (i < count)
            gv_string_add(&line, "%s: %s", request->headers->items[i].name, request->headers->items[i].value);
        else if (request->body)
            gv_string_add(&line, "Content-Type: application/json");
        struct curl_slist *longer = line.text && !line.failed ? gv_curl.slist_append(list, line.text) : NULL;
        *failed = *failed || line.failed || (line.text && !longer);
        list = longer ? longer : list;
        gv_string_free(&line);
    }
    return list;
}

gv_status gv_http(const gv_request *request, gv_answer_text *answer, gv_error *error)
{
    *answer = (gv_answer_text){0};
    gv_status status = gv_curl_load(error);
    if (status != GV_OK)
        return status;
    CURL *easy = gv_curl.easy_init();
    bool failed = false;
    struct curl_slist *headers = make_headers(request, &failed);
    if (!easy || failed) {
        gv_curl.slist_free_all(headers);
        if (easy)
            gv_curl.easy_cleanup(easy);
        return gv_fail(error, GV_ERR_MEMORY, "out of memory for a request");
    }
    char why[CURL_ERROR_SIZE] = "";
    gv_curl.easy_setopt(easy, CURLOPT_URL, request->url);
    gv_curl.easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    gv_curl.easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    // The service is what the plan names, not what a proxy of this machine answers.
    gv_curl.easy_setopt(easy, CURLOPT_NOPROXY, "*");
    gv_curl.easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)(request->seconds * 1000) + 1);
    gv_curl.easy_setopt(easy, CURLOPT_ERRORBUFFER, why);
    gv_curl.easy_setopt(easy, CURLOPT_HTTPHEADER, headers);
    gv_curl.easy_setopt(easy, CURLOPT_WRITEFUNCTION, take);
    gv_curl.easy_setopt(easy, CURLOPT_WRITEDATA, answer);
    gv_curl.easy_setopt(easy, CURLOPT_NOPROGRESS, 0L);
    gv_curl.easy_setopt(easy, CURLOPT_XFERINFOFUNCTION, progress);
    gv_curl.easy_setopt(easy, CURLOPT_XFERINFODATA, request);
    if (request->body)
        gv_curl.easy_setopt(easy, CURLOPT_POSTFIELDS, request->body);
    CURLcode code = gv_curl.easy_perform(easy);
    if (code == CURLE_OK)
        gv_curl.easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &answer->code);
    else
        status = gv_fail(error, GV_ERR_IO, "%s: %s", request->url, why[0] ? why : gv_curl.easy_strerror(code));
    gv_curl.easy_cleanup(easy);
    gv_curl.slist_free_all(headers);
    if (status != GV_OK) {
        gv_free(answer->text);
        *answer = (gv_answer_text){0};
    }
    return status;
}
