/* Buffers posted for messages: the part that all fake transports (core/msg.h) share. */
#ifndef WEFT_TESTS_POSTED_H
#define WEFT_TESTS_POSTED_H

#include "core/msg.h"

struct posted {
    bool live;
    struct weft_msg_expect expect;
    weft_expect_id id;
};

/* Errors:  WEFT_NOMEM  all `max` slots are in use. */
static inline weft_status posted_add(struct posted *all, uint32_t max,
                                     const struct weft_msg_expect *expect, weft_expect_id id)
{
    for (uint32_t i = 0; i < max; i++) {
        if (!all[i].live) {
            all[i] = (struct posted){.live = true, .expect = *expect, .id = id};
            return WEFT_OK;
        }
    }
    return WEFT_NOMEM;
}

static inline weft_status posted_cancel(struct posted *all, uint32_t max, weft_expect_id id)
{
    for (uint32_t i = 0; i < max; i++) {
        if (all[i].live && all[i].id == id) {
            all[i].live = false;
            return WEFT_OK;
        }
    }
    return WEFT_NOTFOUND;
}

#endif
