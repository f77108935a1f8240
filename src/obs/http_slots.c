#include "obs/http_slots.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

/* A request in the socket's buffer is about to be read: its sender is not delaying the server. */
static bool has_unread(const struct weft_http_slot *slot)
{
    char byte;
    return recv(slot->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

static struct weft_http_slot *oldest(struct weft_http_slots *slots, enum weft_http_slot_state state)
{
    struct weft_http_slot *found = NULL;
    for (uint32_t i = 0; i < WEFT_HTTP_CONNECTIONS_MAX; i++) {
        struct weft_http_slot *slot = &slots->slots[i];
        if (slot->state != state || (found != NULL && found->since < slot->since) ||
            (state == WEFT_HTTP_ASKING && has_unread(slot))) {
            continue;
        }
        found = slot;
    }
    return found;
}

/* The new connection has not been served yet: it is not a candidate. */
static void make_room(struct weft_http_slots *slots)
{
    uint32_t used = 0;
    for (uint32_t i = 0; i < WEFT_HTTP_CONNECTIONS_MAX; i++) {
        enum weft_http_slot_state state = slots->slots[i].state;
        used += state == WEFT_HTTP_ASKING || state == WEFT_HTTP_ANSWERING;
    }
    if (used < WEFT_HTTP_CONNECTIONS_KEPT) {
        return;
    }
    struct weft_http_slot *slot = oldest(slots, WEFT_HTTP_ASKING);
    slot = slot != NULL ? slot : oldest(slots, WEFT_HTTP_ANSWERING);
    if (slot != NULL) {
        slot->state = WEFT_HTTP_LEAVING;
        (void)shutdown(slot->fd, SHUT_RDWR);
    }
}

struct weft_http_slot *weft_http_slots_take(struct weft_http_slots *slots, int fd)
{
    make_room(slots);
    for (uint32_t i = 0; i < WEFT_HTTP_CONNECTIONS_MAX; i++) {
        struct weft_http_slot *slot = &slots->slots[i];
        if (slot->state == WEFT_HTTP_FREE) {
            *slot = (struct weft_http_slot){WEFT_HTTP_ASKING, fd, ++slots->changes};
            return slot;
        }
    }
    return NULL;
}

void weft_http_slots_turn(struct weft_http_slots *slots, struct weft_http_slot *slot,
                          enum weft_http_slot_state state)
{
    if (slot != NULL && slot->state != WEFT_HTTP_LEAVING) {
        slot->state = state;
        slot->since = ++slots->changes;
    }
}

void weft_http_slots_drop(struct weft_http_slot *slot)
{
    if (slot != NULL) {
        slot->state = WEFT_HTTP_FREE;
    }
}
