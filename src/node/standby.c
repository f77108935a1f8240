#include "node/standby.h"

#include "base/bits.h"

#include <stdlib.h>

static const uint64_t reconnect_ns = 100 * WEFT_NS_PER_MS;

/* The pause after a transfer that could not be applied: a new one would be sent completely, and
 * most likely fail again. */
static const uint64_t refused_ns = 5 * WEFT_NS_PER_S;

enum { PEERS_MAX = 4096 }; /* of an endpoint */

struct weft_standby {
    struct weft_driver *driver;
    struct weft_shard *shard;
    const struct weft_launch_address *address;
    void (*supply)(struct weft_shard *shard);
    struct weft_replica *replica;
    weft_peer peer;                     /* WEFT_PEER_ANY = none, and no connection attempt */
    uint64_t strangers[PEERS_MAX / 64]; /* bits: connected peers that are not the replica's */
    uint64_t connect_ns;                /* time of the next attempt */
    bool was_up;                        /* the replica's connection was established */
    bool is_spent;                      /* the connection ended, and a newer one exists: */
    struct weft_msg_event up;           /* its PEER_UP, for the next replica */
    bool has_ended;
};

static weft_status make_replica(struct weft_standby *standby)
{
    struct weft_replica_config config;
    weft_replica_config_default(&config);
    config.supply = standby->supply;
    return weft_replica_new(&config, standby->shard, weft_driver_msgr(standby->driver),
                            &standby->replica);
}

static void free_replica(struct weft_standby *standby)
{
    void *piece;
    while (standby->replica != NULL &&
           (piece = weft_replica_take_piece(standby->replica, true)) != NULL) {
        free(piece);
    }
    weft_replica_free(standby->replica);
    standby->replica = NULL;
}

weft_status weft_standby_new(struct weft_driver *driver, struct weft_shard *shard,
                             const struct weft_launch_address *address,
                             void (*supply)(struct weft_shard *shard),
                             struct weft_standby **standby_p)
{
    struct weft_standby *standby = calloc(1, sizeof(*standby));
    if (standby == NULL) {
        return WEFT_NOMEM;
    }
    *standby = (struct weft_standby){.driver = driver,
                                     .shard = shard,
                                     .address = address,
                                     .supply = supply,
                                     .peer = WEFT_PEER_ANY};
    weft_status status = make_replica(standby);
    if (status != WEFT_OK) {
        free(standby);
        return status;
    }
    *standby_p = standby;
    return WEFT_OK;
}

void weft_standby_free(struct weft_standby *standby)
{
    if (standby != NULL) {
        free_replica(standby);
        free(standby);
    }
}

bool weft_standby_event(struct weft_standby *standby, const struct weft_msg_event *event,
                        uint64_t now_ns)
{
    bool is_mine = event->peer == standby->peer;
    if (standby->replica == NULL) {
        return true; /* the thread is about to end */
    }
    if (event->type == WEFT_EVENT_PEER_UP && is_mine && standby->was_up && !standby->has_ended) {
        standby->is_spent = true;
        standby->up = *event;
        return true;
    }
    /* A process that connects to this one is unrelated, even with the shard's name: another replica
     * has that name. */
    const bool is_stranger = event->type == WEFT_EVENT_PEER_UP && !is_mine;
    bool taken = !is_stranger && weft_replica_event(standby->replica, event, now_ns);
    standby->was_up |= event->type == WEFT_EVENT_PEER_UP && taken;
    if (event->type == WEFT_EVENT_PEER_DOWN && is_mine) {
        standby->peer = WEFT_PEER_ANY;
        const struct weft_replica_state *state = weft_replica_state(standby->replica);
        standby->connect_ns =
            state->too_large ? WEFT_NEVER
                             : weft_time_add(now_ns, state->refused ? refused_ns : reconnect_ns);
        standby->is_spent = false;
        return true;
    }
    if (event->type == WEFT_EVENT_PEER_DOWN && event->peer < PEERS_MAX) {
        weft_bits_clear(standby->strangers, event->peer);
    }
    if (standby->has_ended) {
        return taken || is_mine;
    }
    /* This address has not been published, so every peer except the shard is refused. */
    if (event->type == WEFT_EVENT_PEER_UP && !taken && event->peer < PEERS_MAX) {
        weft_bits_set(standby->strangers, event->peer);
    }
    return true;
}

void weft_standby_progress(struct weft_standby *standby, uint64_t now_ns)
{
    void *piece;
    if (standby->is_spent || standby->has_ended || standby->replica == NULL) {
        return;
    }
    while (weft_replica_wants_piece(standby->replica) &&
           (piece = malloc(WEFT_PIECE_BYTES_MAX)) != NULL) {
        weft_replica_add_piece(standby->replica, piece);
    }
    weft_replica_progress(standby->replica, now_ns);
    while ((piece = weft_replica_take_piece(standby->replica, false)) != NULL) {
        free(piece);
    }
}

uint64_t weft_standby_maintain(struct weft_standby *standby, uint64_t now_ns)
{
    struct weft_error error; /* ignored: the attempt is repeated */
    for (size_t peer = weft_bits_next_one(standby->strangers, PEERS_MAX, 0); peer < PEERS_MAX;
         peer = weft_bits_next_one(standby->strangers, PEERS_MAX, peer + 1)) {
        weft_bits_clear(standby->strangers, peer);
        weft_driver_disconnect(standby->driver, (weft_peer)peer);
    }
    if (standby->has_ended || standby->peer != WEFT_PEER_ANY) {
        return WEFT_NEVER;
    }
    if (now_ns >= standby->connect_ns && !standby->is_spent) {
        if (weft_driver_connect(standby->driver, standby->address->host, standby->address->port,
                                &standby->peer, &error) == WEFT_OK) {
            return WEFT_NEVER;
        }
        standby->peer = WEFT_PEER_ANY;
        standby->connect_ns = weft_time_add(now_ns, reconnect_ns);
    }
    return standby->connect_ns;
}

bool weft_standby_has_ended(const struct weft_standby *standby)
{
    return standby->has_ended;
}

bool weft_standby_is_spent(const struct weft_standby *standby)
{
    return standby->is_spent;
}

weft_status weft_standby_renew(struct weft_standby *standby, struct weft_shard *shard,
                               uint64_t now_ns)
{
    free_replica(standby);
    standby->shard = shard;
    standby->is_spent = false;
    weft_status status = make_replica(standby);
    if (status == WEFT_OK) {
        (void)weft_replica_event(standby->replica, &standby->up, now_ns);
    }
    return status;
}

const struct weft_replica *weft_standby_replica(const struct weft_standby *standby)
{
    return standby->replica;
}

enum weft_replica_why weft_standby_may_end(const struct weft_standby *standby, uint64_t at_ns)
{
    return standby->replica == NULL ? WEFT_REPLICA_REFUSED
                                    : weft_replica_may_be_promoted(standby->replica, at_ns);
}

enum weft_replica_why weft_standby_end(struct weft_standby *standby, uint64_t at_ns)
{
    enum weft_replica_why why = weft_standby_may_end(standby, at_ns);
    if (why == WEFT_REPLICA_GOOD && !standby->has_ended) {
        weft_replica_end(standby->replica);
        standby->has_ended = true;
        standby->is_spent = false;
        if (standby->peer != WEFT_PEER_ANY) {
            weft_driver_disconnect(standby->driver, standby->peer);
        }
    }
    return why;
}
