// Why a round of a session was not clean: the stable ids of docs/stress.md, each with its class. One table, from which
// the report, the JSON and the documentation's test are made.
#ifndef GV_STRESS_REASON_H
#define GV_STRESS_REASON_H

#include <stdbool.h>
#include <stdint.h>

// In the order of their weight: the class of a session is the highest of its rounds'.
typedef enum gv_class {
    GV_CLASS_CLEAN,
    GV_CLASS_UNSURE,     // a problem that the model may have alone, or that nothing can be compared with
    GV_CLASS_FAILURE,    // no whole answer came: HTTP, time-out, refused, not the protocol
    GV_CLASS_CORRUPTION, // a whole answer came, and it is wrong
    GV_CLASS_COUNT
} gv_class;

// In the order in which they are told when a round has several: the first set one leads.
typedef enum gv_reason {
    // Failures of the connection and the protocol
    GV_REASON_REFUSED,
    GV_REASON_UNREACHABLE,
    GV_REASON_TLS,
    GV_REASON_TIMEOUT,
    GV_REASON_RESET,
    GV_REASON_CUT,
    GV_REASON_HTTP_PROTOCOL,
    GV_REASON_REDIRECT,
    GV_REASON_UNAUTHORISED,
    GV_REASON_RATE_LIMITED,
    GV_REASON_HTTP_STATUS,
    GV_REASON_TOO_LARGE,
    GV_REASON_INVALID_UTF8,
    GV_REASON_NOT_JSON,
    GV_REASON_WRONG_SCHEMA,
    GV_REASON_SERVER_ERROR,
    GV_REASON_NO_DONE,
    GV_REASON_INTERRUPTED,
    GV_REASON_OWN,
    // Corruption
    GV_REASON_TEMPLATE_FRAGMENT,
    GV_REASON_GARBLED,
    GV_REASON_LOOP,
    GV_REASON_LENGTH_NO_CALL,
    GV_REASON_LENGTH_IN_CALL,
    GV_REASON_NO_CALL,
    GV_REASON_BAD_JSON,
    GV_REASON_UNKNOWN_TOOL,
    GV_REASON_WRONG_TOOL,
    GV_REASON_WRONG_TYPE,
    GV_REASON_WRONG_ARGUMENTS,
    GV_REASON_EXTRA_CALL,
    GV_REASON_WRONG_TEXT,
    GV_REASON_CALL_DIFFERS,
    GV_REASON_TEXT_DIFFERS,
    // Unsure
    GV_REASON_ALONE_TOO,
    GV_REASON_NOT_COMPARED,
    GV_REASON_DRIFTED,
    GV_REASON_REFUSAL,
    GV_REASON_COUNT
} gv_reason;

// A set of reasons, one bit each.
typedef uint64_t gv_reasons;
#define GV_REASON_BIT(reason) ((gv_reasons)1 << (reason))

const char *gv_class_name(gv_class class_);

// The stable id ("wrong-arguments"), the class, and one sentence. Never NULL.
const char *gv_reason_id(gv_reason reason);
gv_class gv_reason_class(gv_reason reason);
const char *gv_reason_about(gv_reason reason);

// The class of a set: the highest of its members'. The leading reason: the first of that class, or GV_REASON_COUNT for
// the empty set.
gv_class gv_reasons_class(gv_reasons reasons);
gv_reason gv_reasons_leading(gv_reasons reasons);

// Whether the set holds a reason of this class.
bool gv_reasons_have(gv_reasons reasons, gv_class class_);

#endif
