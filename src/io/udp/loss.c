#include "io/udp/loss.h"

#include "base/assert.h"

void weft_loss_init(struct weft_loss *loss, const struct weft_loss_config *config)
{
    WEFT_ASSERT(config->loss_ppm <= WEFT_PPM);
    loss->loss_ppm = config->loss_ppm;
    weft_prng_split(&loss->prng, config->seed, ((uint64_t)config->role << 32) | config->rank);
}
