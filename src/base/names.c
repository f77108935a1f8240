#include "base/names.h"

#include <stddef.h>

bool weft_job_name_valid(const char job[WEFT_JOB_NAME_BYTES])
{
    bool ended = false;
    for (size_t i = 0; i < WEFT_JOB_NAME_BYTES; i++) {
        char c = job[i];
        bool good = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
                    c == '.' || c == '_' || c == '-';
        if (c == '\0') {
            ended = true;
        } else if (!good || ended) {
            return false;
        }
    }
    return ended;
}

const char *weft_status_words_name(const struct weft_status_words *all, uint32_t count,
                                   uint32_t status)
{
    return status < count ? all[status].name : "unknown";
}

const char *weft_status_words_text(const struct weft_status_words *all, uint32_t count,
                                   uint32_t status)
{
    return status < count ? all[status].text : "refused for a reason unknown to this release";
}
