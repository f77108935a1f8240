/* The coordinator on a message interface: it receives requests and sends the roster's replies.
 *
 * It posts memory for requests, decodes them, passes them to the roster, and delays replies to LIST
 * until the list is complete and new to the requester. A reply is sent only after the records that
 * it depends on are on the disk; several replies share one sync.
 *
 * Sans-I/O, one thread. The driver connects nothing: members connect.
 *
 * Source: docs/PROTOCOL.md section 11.
 */
#ifndef WEFT_MEMBER_SERVICE_H
#define WEFT_MEMBER_SERVICE_H

#include "core/msg.h"
#include "member/roster.h"

struct weft_member_service;

enum weft_member_note {
    WEFT_MEMBER_NOTE_JOINED,
    WEFT_MEMBER_NOTE_REFUSED,
    WEFT_MEMBER_NOTE_LEFT,
    WEFT_MEMBER_NOTE_EXPIRED,
    WEFT_MEMBER_NOTE_RECLAIMED, /* renewed an expired lease that no other member had taken */
    WEFT_MEMBER_NOTE_COMPLETE,  /* all shards are registered (again); `who` is NULL */
};

struct weft_member_service_config {
    uint32_t peers_max; /* of the endpoint */
    uint32_t slots;     /* requests received at a time */
    uint32_t shards_max;
    struct weft_roster *roster; /* borrowed */
    /* Append a record; sync all records. False = failed: no member can join any more. NULL: there
     * is no journal. */
    bool (*record)(void *arg, uint8_t op, const uint8_t *bytes, size_t count);
    bool (*sync)(void *arg);
    /* Events worth logging. NULL = none. */
    void (*note)(void *arg, enum weft_member_note what, const struct weft_member_request *who,
                 uint16_t status);
    void *arg;
};

/* Maximum number of receives (struct weft_msg_expect) that it posts. */
uint32_t weft_member_service_expects_max(const struct weft_member_service_config *config);

/* Errors:  WEFT_NOMEM; WEFT_INVALID. */
weft_status weft_member_service_new(const struct weft_member_service_config *config,
                                    struct weft_msgr msgr, struct weft_member_service **service_p);
/* Call it after the endpoint was closed, because the endpoint borrows the service's memory. */
void weft_member_service_free(struct weft_member_service *service);

void weft_member_service_event(struct weft_member_service *service,
                               const struct weft_msg_event *event, uint64_t now_ns);

/* Let leases expire, write records, and send due replies: after each batch of events. */
void weft_member_service_progress(struct weft_member_service *service, uint64_t now_ns);

/* When progress is due without an event. */
uint64_t weft_member_service_deadline(const struct weft_member_service *service);

/* The journal failed: the driver logs that once. */
bool weft_member_service_is_broken(const struct weft_member_service *service);

#endif
