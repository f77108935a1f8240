#include "base/status.h"

static const struct {
    const char *name;
    const char *text;
} status_table[WEFT_STATUS_COUNT] = {
#define X(name, text) [WEFT_##name] = {"WEFT_" #name, text},
    WEFT_STATUS_MAP(X)
#undef X
};

const char *weft_status_name(weft_status status)
{
    if ((unsigned)status >= WEFT_STATUS_COUNT) {
        return "WEFT_?";
    }
    return status_table[status].name;
}

const char *weft_status_text(weft_status status)
{
    if ((unsigned)status >= WEFT_STATUS_COUNT) {
        return "unknown status";
    }
    return status_table[status].text;
}
