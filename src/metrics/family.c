#include "metrics/family.h"

#include <stdio.h>
#include <string.h>

void weft_metrics_families(struct weft_exposition *text, const struct weft_metrics_family *families,
                           size_t rows, const void *things, size_t stride, size_t base,
                           uint32_t count)
{
    for (size_t f = 0; f < rows; f++) {
        const struct weft_metrics_family *family = &families[f];
        if (f == 0 || strcmp(family->name, families[f - 1].name) != 0) {
            weft_exposition_family(text, family->name, family->type, family->help);
        }
        for (uint32_t i = 0; i < count; i++) {
            const char *thing = (const char *)things + i * stride;
            /* The labels of an object, if it has any, are its first member. */
            const char *own = base > 0 ? thing : "";
            char labels[2 * WEFT_METRICS_LABELS_BYTES];
            uint64_t value;
            snprintf(labels, sizeof(labels), "%s%s%s", own,
                     own[0] != '\0' && family->labels[0] != '\0' ? "," : "", family->labels);
            memcpy(&value, thing + base + family->at, sizeof(value));
            weft_exposition_u64(text, family->name, labels, value);
        }
    }
}
