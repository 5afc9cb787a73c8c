// Checks a value against the part of JSON Schema that tool parameters use: type, properties, required,
// additionalProperties (false, or absent), enum, const, items, minimum, maximum, minLength, maxLength, minItems and
// maxItems. Other keywords are ignored: the check may miss a mistake, and never invents one.
#ifndef GV_STRESS_SCHEMA_H
#define GV_STRESS_SCHEMA_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

// Whether `value` satisfies `schema` (NULL: anything does). Else `problem` gets a sentence that names the member:
// "`litres` should be an integer, not a string".
bool gv_schema_check(const json_t *schema, const json_t *value, char *problem, size_t size);

// The schema of a property of an object schema, or NULL.
const json_t *gv_schema_property(const json_t *schema, const char *name);

// Whether the schema's type is, or may be, the named one.
bool gv_schema_allows(const json_t *schema, const char *type);

// "a string", "an integer", ...
const char *gv_json_type_name(const json_t *value);

#endif
