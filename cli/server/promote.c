/* Promotion of a replica: it replaces the server whose shards it replicates.
 *
 * The order of the steps matters. (1) Check that all shards of the replica are within the
 * divergence bound and have received data from the server recently. (2) The coordinator transfers
 * the lease, so that the previous process, which may still run and be merely disconnected, is
 * replaced and exits. (3) The shards start to serve. (4) Workers get the new addresses. */
#include "cli/server/internal.h"

#include "cli/child.h"
#include "io/clock.h"

#include <string.h>

bool weft_server_is_promotion(const cJSON *message, struct weft_server_promotion *promotion_p)
{
    if (strcmp(weft_channel_text(message, "event"), "promote") != 0) {
        return false;
    }
    promotion_p->restart = (uint32_t)weft_channel_number(message, "restart");
    promotion_p->died_ns = (uint64_t)weft_channel_number(message, "died_ns");
    return true;
}

typedef weft_status ask_fn(struct weft_shard_thread *thread, uint64_t at_ns,
                           enum weft_replica_why *why_p);

static weft_status ask_all(struct server *server, ask_fn *ask, uint64_t at_ns,
                           struct weft_error *error)
{
    for (uint32_t i = 0; i < server->started; i++) {
        enum weft_replica_why why = WEFT_REPLICA_GOOD;
        weft_status status = ask(&server->threads[i], at_ns, &why);
        if (status != WEFT_OK || why != WEFT_REPLICA_GOOD) {
            return weft_fail(error, WEFT_STATE, "the replica of shard %u is not promoted: %s",
                             server->shard_base + i,
                             status != WEFT_OK ? "its thread does not reply"
                                               : weft_replica_why_text(why));
        }
    }
    return WEFT_OK;
}

void weft_server_report_replica(struct server *server)
{
    struct weft_error error;
    if (ask_all(server, weft_shard_thread_may_be_promoted, WEFT_NEVER, &error) == WEFT_OK) {
        server->has_reported = true;
        (void)weft_channel_send(&server->channel, weft_channel_event("replica-ready"));
    }
}

static weft_status take_lease(struct server *server, struct weft_error *error)
{
    const uint32_t first = server->shard_base, shards = server->each.shard.shards;
    weft_status status = weft_server_join(server, error);
    if (status == WEFT_OK && (server->shard_base != first || server->each.shard.shards != shards)) {
        status = weft_fail(error, WEFT_PEER,
                           "the coordinator assigned shards from %u of %u, but this is a replica "
                           "of shards from %u of %u",
                           server->shard_base, server->each.shard.shards, first, shards);
    }
    return status;
}

weft_status weft_server_promote(struct server *server,
                                const struct weft_server_promotion *promotion,
                                struct weft_error *error)
{
    const uint64_t begun_ns = weft_clock_now_ns();
    /* The replica must have been recent when the server died, not now: the server has sent nothing
     * since then. */
    const uint64_t at_ns = promotion->died_ns != 0 ? promotion->died_ns : WEFT_NEVER;
    weft_status status = ask_all(server, weft_shard_thread_may_be_promoted, at_ns, error);
    cJSON *event;
    if (status != WEFT_OK) {
        event = weft_channel_event("not-promoted");
        cJSON_AddStringToObject(event, "text", error->text);
        (void)weft_channel_send(&server->channel, event);
        return WEFT_OK; /* still a replica */
    }
    server->membership.launch.restart = promotion->restart;
    status = take_lease(server, error);
    status = status == WEFT_OK ? ask_all(server, weft_shard_thread_promote, at_ns, error) : status;
    status = status == WEFT_OK ? weft_server_publish(server, error) : status;
    if (status == WEFT_OK) {
        server->replica_of = NULL;
        event = weft_channel_event("promoted");
        cJSON_AddNumberToObject(event, "took_ms",
                                (double)(weft_clock_now_ns() - begun_ns) / WEFT_NS_PER_MS);
        (void)weft_channel_send(&server->channel, event);
    }
    return status;
}
