/* Parse arbitrary bytes as a Prometheus exposition: every parsed sample must have a name and a
 * nonnegative value, and its name and labels must not be longer than the input. */
#include "base/assert.h"
#include "obs/samples.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct weft_samples samples;
    char value[16];
    char *text = malloc(size + 1);
    WEFT_ASSERT(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    if (weft_samples_parse(text, &samples) != WEFT_OK) {
        return 0;
    }
    for (uint32_t i = 0; i < samples.count; i++) {
        const struct weft_sample *sample = &samples.at[i];
        WEFT_ASSERT(sample->name[0] != '\0' && sample->value >= 0);
        WEFT_ASSERT(strlen(sample->name) + strlen(sample->labels) <= size);
        WEFT_ASSERT(weft_samples_have(&samples, sample->name));
        (void)weft_samples_label(&samples, sample->name, "role", value, sizeof(value));
    }
    WEFT_ASSERT(weft_samples_sum(&samples, samples.at[0].name, NULL) >= samples.at[0].value);
    weft_samples_fini(&samples);
    return 0;
}
