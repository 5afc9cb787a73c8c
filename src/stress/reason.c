#include "stress/reason.h"

static const struct {
    const char *id;
    gv_class class_;
    const char *about;
} table[GV_REASON_COUNT] = {
    [GV_REASON_REFUSED] = {"refused", GV_CLASS_FAILURE, "The server refused the connection."},
    [GV_REASON_UNREACHABLE] = {"unreachable", GV_CLASS_FAILURE, "No connection: no route, or no such host."},
    [GV_REASON_TLS] = {"tls", GV_CLASS_FAILURE, "TLS failed: the certificate or the handshake."},
    [GV_REASON_TIMEOUT] = {"timeout", GV_CLASS_FAILURE, "The answer was not whole when --timeout was over."},
    [GV_REASON_RESET] = {"reset", GV_CLASS_FAILURE, "The server closed the connection without an answer or reset it."},
    [GV_REASON_CUT] = {"cut", GV_CLASS_FAILURE,
                       "The answer ended early: no finish_reason, or fewer bytes than were "
                       "announced."},
    [GV_REASON_HTTP_PROTOCOL] = {"http-protocol", GV_CLASS_FAILURE, "What came is not HTTP/1.1, such as a bad chunk."},
    [GV_REASON_REDIRECT] = {"redirect", GV_CLASS_FAILURE, "A redirect, which is not followed."},
    [GV_REASON_UNAUTHORISED] = {"unauthorised", GV_CLASS_FAILURE, "HTTP status 401 or 403."},
    [GV_REASON_RATE_LIMITED] = {"rate-limited", GV_CLASS_FAILURE, "HTTP status 429."},
    [GV_REASON_HTTP_STATUS] = {"http-status", GV_CLASS_FAILURE, "Another HTTP status than 200."},
    [GV_REASON_TOO_LARGE] = {"too-large", GV_CLASS_FAILURE,
                             "Headers, an event or the whole answer were beyond every "
                             "bound, such as a stream without an end."},
    [GV_REASON_INVALID_UTF8] = {"invalid-utf8", GV_CLASS_FAILURE, "The answer is not UTF-8."},
    [GV_REASON_NOT_JSON] = {"not-json", GV_CLASS_FAILURE, "The answer or an event of the stream is not JSON."},
    [GV_REASON_WRONG_SCHEMA] = {"wrong-schema", GV_CLASS_FAILURE,
                                "The JSON is no chat completion, or the content type "
                                "is another than was asked for."},
    [GV_REASON_SERVER_ERROR] = {"server-error", GV_CLASS_FAILURE, "The server sent an error object with status 200."},
    [GV_REASON_NO_DONE] = {"no-done", GV_CLASS_FAILURE, "The stream has a finish_reason, but ended without [DONE]."},
    [GV_REASON_INTERRUPTED] = {"interrupted", GV_CLASS_FAILURE, "The run was interrupted."},
    [GV_REASON_OWN] = {"own", GV_CLASS_FAILURE, "gravel's own failure: out of memory or of file descriptors."},

    [GV_REASON_TEMPLATE_FRAGMENT] = {"template-fragment", GV_CLASS_CORRUPTION,
                                     "Text or arguments hold a piece of a chat template, such as <|im_start|>."},
    [GV_REASON_GARBLED] = {"garbled", GV_CLASS_CORRUPTION, "Text or arguments hold U+FFFD or control characters."},
    [GV_REASON_LOOP] = {"loop", GV_CLASS_CORRUPTION, "The text repeats itself."},
    [GV_REASON_LENGTH_NO_CALL] = {"length-no-call", GV_CLASS_CORRUPTION,
                                  "finish_reason is `length`, and no call was made where one was expected."},
    [GV_REASON_LENGTH_IN_CALL] = {"length-in-call", GV_CLASS_CORRUPTION,
                                  "finish_reason is `length`, and the arguments of a call are not whole."},
    [GV_REASON_NO_CALL] = {"no-call", GV_CLASS_CORRUPTION, "No call was made where one was expected."},
    [GV_REASON_BAD_JSON] = {"bad-json", GV_CLASS_CORRUPTION, "The arguments of a call are not a JSON object."},
    [GV_REASON_UNKNOWN_TOOL] = {"unknown-tool", GV_CLASS_CORRUPTION,
                                "A tool was called that the request does not have."},
    [GV_REASON_WRONG_TOOL] = {"wrong-tool", GV_CLASS_CORRUPTION, "Another tool than the expected one was called."},
    [GV_REASON_WRONG_TYPE] = {"wrong-type", GV_CLASS_CORRUPTION, "The arguments do not satisfy the tool's schema."},
    [GV_REASON_WRONG_ARGUMENTS] = {"wrong-arguments", GV_CLASS_CORRUPTION,
                                   "The arguments are well-formed, and not the expected ones."},
    [GV_REASON_EXTRA_CALL] = {"extra-call", GV_CLASS_CORRUPTION,
                              "More calls than the expected one, or a call where "
                              "text was expected."},
    [GV_REASON_WRONG_TEXT] = {"wrong-text", GV_CLASS_CORRUPTION, "The text lacks what was expected in it."},
    [GV_REASON_CALL_DIFFERS] = {"call-differs", GV_CLASS_CORRUPTION,
                                "The calls differ from those of the same session run alone."},
    [GV_REASON_TEXT_DIFFERS] = {"text-differs", GV_CLASS_CORRUPTION,
                                "With --exact: the text differs from that of the same session run alone."},

    [GV_REASON_ALONE_TOO] = {"alone-too", GV_CLASS_UNSURE,
                             "The answer is wrong, but the same session run alone is wrong in this round too."},
    [GV_REASON_NOT_COMPARED] = {"not-compared", GV_CLASS_UNSURE,
                                "Nothing is expected of this round, and there is no baseline to compare with."},
    [GV_REASON_DRIFTED] =
        {"drifted", GV_CLASS_UNSURE,
         "Nothing is expected of this round, and the text differs from that of the session run alone; "
         "--exact calls this corruption."},
    [GV_REASON_REFUSAL] = {"refusal", GV_CLASS_UNSURE, "The model or a content filter refused to answer."},
};

const char *gv_class_name(gv_class class_)
{
    static const char *const names[GV_CLASS_COUNT] = {"clean", "unsure", "failure", "corruption"};
    return (unsigned)class_ < GV_CLASS_COUNT ? names[class_] : "unknown";
}

const char *gv_reason_id(gv_reason reason)
{
    return (unsigned)reason < GV_REASON_COUNT ? table[reason].id : "unknown";
}

gv_class gv_reason_class(gv_reason reason)
{
    return (unsigned)reason < GV_REASON_COUNT ? table[reason].class_ : GV_CLASS_CLEAN;
}

const char *gv_reason_about(gv_reason reason)
{
    return (unsigned)reason < GV_REASON_COUNT ? table[reason].about : "";
}

gv_class gv_reasons_class(gv_reasons reasons)
{
    gv_class highest = GV_CLASS_CLEAN;
    for (unsigned i = 0; i < GV_REASON_COUNT; i++) {
        if ((reasons & GV_REASON_BIT(i)) && table[i].class_ > highest)
            highest = table[i].class_;
    }
    return highest;
}

gv_reason gv_reasons_leading(gv_reasons reasons)
{
    gv_class class_ = gv_reasons_class(reasons);
    for (unsigned i = 0; i < GV_REASON_COUNT; i++) {
        if ((reasons & GV_REASON_BIT(i)) && table[i].class_ == class_)
            return (gv_reason)i;
    }
    return GV_REASON_COUNT;
}

bool gv_reasons_have(gv_reasons reasons, gv_class class_)
{
    for (unsigned i = 0; i < GV_REASON_COUNT; i++) {
        if ((reasons & GV_REASON_BIT(i)) && table[i].class_ == class_)
            return true;
    }
    return false;
}
