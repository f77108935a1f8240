#include "io/udp/inject_loss.h"

#include "base/assert.h"

void weft_inject_loss_init(struct weft_inject_loss *inject,
                           const struct weft_inject_loss_config *config)
{
    WEFT_ASSERT(config->loss_ppm <= WEFT_PPM);
    inject->loss_ppm = config->loss_ppm;
    weft_prng_split(&inject->prng, config->seed, ((uint64_t)config->role << 32) | config->rank);
}
