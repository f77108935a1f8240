#include "lab/box.h"

#include "base/assert.h"
#include "lab/address.h"
#include "lab/aggregate.h"

#include <arpa/inet.h>

weft_status weft_lab_box_build(const struct weft_lab_spec *spec, uint32_t leaf,
                               struct weft_error *error)
{
    uint32_t hosts = spec->hosts / spec->leaves;
    WEFT_ASSERT(hosts > 0 && hosts <= WEFT_AGG_MEMBERS_MAX);
    struct weft_agg_config config = {.members = UINT64_MAX >> (WEFT_AGG_MEMBERS_MAX - hosts),
                                     .slots = WEFT_LAB_BOX_SLOTS,
                                     .job = WEFT_LAB_BOX_JOB};
    struct weft_aggregate *box = NULL;
    struct in_addr address;
    char text[WEFT_LAB_ADDRESS_BYTES];
    weft_lab_router_address(leaf, text);
    WEFT_ASSERT(inet_pton(AF_INET, text, &address) == 1);
    weft_status status = weft_aggregate_open(&config, WEFT_LAB_BOX_PORT, &box, error);
    if (status != WEFT_OK) {
        return status;
    }
    status = weft_aggregate_set_addresses(box, &address.s_addr, 1, error);
    if (status == WEFT_OK) {
        status = weft_aggregate_learn(box, error);
    }
    for (uint32_t i = 0; i < hosts && status == WEFT_OK; i++) {
        char port[WEFT_LAB_NODE_BYTES];
        weft_lab_host_name(leaf * hosts + i, port);
        status = weft_aggregate_install(box, port, error);
    }
    weft_aggregate_close(box);
    return status;
}
