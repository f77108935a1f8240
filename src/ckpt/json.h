/* Checked access to members of a JSON object. */
#ifndef WEFT_CKPT_JSON_H
#define WEFT_CKPT_JSON_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>

/* Read a number of 0 .. max, max at most 2^53; false if it is missing or out of range. */
static inline bool weft_ckpt_json_number(const cJSON *root, const char *name, uint64_t max,
                                         uint64_t *value_p)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(root, name);
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0) || item->valuedouble > (double)max) {
        return false;
    }
    *value_p = (uint64_t)item->valuedouble;
    return true;
}

#endif
