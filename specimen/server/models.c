// GET /v1/models, and JSON answers in general.
#include "specimen/server/models.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

void gv_json_reply(gv_http_exchange *exchange, int status, json_t *root)
{
    char *text = root ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    char *copy = text ? gv_strdup(text) : NULL;
    free(text);
    gv_http_reply(exchange, status, "application/json", copy, copy ? strlen(copy) : 1);
}

void gv_models_reply(gv_http_exchange *exchange, const char *model)
{
    gv_json_reply(exchange, 200,
                  json_pack("{s:s,s:[{s:s,s:s,s:i,s:s}]}", "object", "list", "data", "id", model, "object", "model",
                            "created", 0, "owned_by", "gravel"));
}
