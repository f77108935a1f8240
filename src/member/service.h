/* The coordinator on a message interface: requests in, the roster's answers out.
 *
 * It posts memory for requests, decodes them, asks the roster, and keeps answers to LIST back until
 * the list is complete and new to the asker. An answer goes out only after the records that it rests
 * on are on the disk; many at a time share one sync.
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
    WEFT_MEMBER_NOTE_RECLAIMED, /* spoke again before its place was given away */
    WEFT_MEMBER_NOTE_COMPLETE, /* all shards are there (again); `who` is NULL */
};

struct weft_member_service_config {
    uint32_t peers_max; /* of the endpoint */
    uint32_t slots;     /* requests taken at a time */
    uint32_t shards_max;
    struct weft_roster *roster; /* borrowed */
    /* Append a record; make all records safe. False = it cannot be done: nobody joins any more.
     * NULL: there is no journal. */
    bool (*record)(void *arg, uint8_t op, const uint8_t *bytes, size_t count);
    bool (*sync)(void *arg);
    /* Something a person may want to know. NULL = nobody does. */
    void (*note)(void *arg, enum weft_member_note what, const struct weft_member_request *who,
                 uint16_t status);
    void *arg;
};

/* Expectations that it posts. */
uint32_t weft_member_service_expects_max(const struct weft_member_service_config *config);

/* Errors:  WEFT_NOMEM; WEFT_INVALID. */
weft_status weft_member_service_new(const struct weft_member_service_config *config,
                                    struct weft_msgr msgr,
                                    struct weft_member_service **service_p);
/* After the endpoint, which borrows its memory. */
void weft_member_service_free(struct weft_member_service *service);

void weft_member_service_event(struct weft_member_service *service,
                               const struct weft_msg_event *event, uint64_t now_ns);

/* Let leases lapse, write, and send what is due: after the events of a turn. */
void weft_member_service_progress(struct weft_member_service *service, uint64_t now_ns);

/* When progress is due without an event. */
uint64_t weft_member_service_deadline(const struct weft_member_service *service);

/* The journal failed: the driver shall say so once. */
bool weft_member_service_is_broken(const struct weft_member_service *service);

#endif
