#include "core/cc.h"

#include <string.h>

extern const struct weft_cc_ops weft_cc_window;

const struct weft_cc_ops *const weft_cc_all[] = {&weft_cc_window, NULL};

const struct weft_cc_ops *weft_cc_find(const char *name)
{
    if (name == NULL) {
        return weft_cc_all[0];
    }
    for (size_t i = 0; weft_cc_all[i] != NULL; i++) {
        if (strcmp(weft_cc_all[i]->name, name) == 0) {
            return weft_cc_all[i];
        }
    }
    return NULL;
}

uint32_t weft_cc_loss_ppm(const struct weft_cc *cc)
{
    return cc->loss_ppm == UINT32_MAX ? 0 : cc->loss_ppm;
}
