// GET /v1/models.
#ifndef GV_SERVER_MODELS_H
#define GV_SERVER_MODELS_H

#include "specimen/server/http.h"

#include <jansson.h>

// Answers with the list of the one model that is served.
void gv_models_reply(gv_http_exchange *exchange, const char *model);

// Answers with a JSON value, whose reference is taken over; NULL means that memory ran out while it was made.
void gv_json_reply(gv_http_exchange *exchange, int status, json_t *root);

#endif
