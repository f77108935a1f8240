/* Error texts for a worker and its servers, each with the next action. */
#include "node/worker.h"

#include <assert.h>
#include <stdio.h>

bool weft_worker_hint(struct weft_worker *worker, char text_p[WEFT_SECURITY_HINT_BYTES])
{
    enum weft_ep_hint hint = weft_endpoint_hint(&worker->endpoint);
    if (hint == WEFT_HINT_NONE) {
        static_assert((int)WEFT_SECURITY_HINT_BYTES >= (int)WEFT_UNREACHED_BYTES);
        weft_endpoint_unreached(&worker->endpoint, text_p);
        return false;
    }
    weft_security_hint(worker->security, hint, text_p, WEFT_SECURITY_HINT_BYTES);
    return hint != WEFT_HINT_TOLD_FULL;
}

bool weft_worker_is_down(const struct weft_worker *worker, uint32_t *shard_p)
{
    for (uint32_t s = 0; worker->any_down && s < worker->shards; s++) {
        if (worker->servers[s].is_down) {
            *shard_p = s;
            return true;
        }
    }
    return false;
}

bool weft_worker_is_lost(const struct weft_worker *worker, uint32_t *shard_p)
{
    struct weft_ps_clock_refusal refusal;
    if (weft_worker_is_down(worker, shard_p)) {
        return true;
    }
    if (!weft_ps_clock_refused(worker->client, &refusal)) {
        return false;
    }
    *shard_p = refusal.shard;
    return true;
}

static const char *down_text(enum weft_msg_down down)
{
    switch (down) {
    case WEFT_DOWN_CLOSED:
        return "it ended or closed this connection";
    case WEFT_DOWN_PROTOCOL:
        return "it broke the protocol; run the same weft version at both ends";
    case WEFT_DOWN_LOCAL:
        return "this end closed the connection";
    case WEFT_DOWN_IDLE:
        return "nothing was outstanding for too long";
    case WEFT_DOWN_RESTARTED:
        return "it was restarted, or dropped this worker, which was silent for too long (call "
               "weft_ps_idle before a long computation, or set thread)";
    case WEFT_DOWN_CRYPTO:
        return "the cryptography of this process failed; a forked process must connect again";
    case WEFT_DOWN_SILENT:
    case WEFT_DOWN_REPLACED:
        break; /* these have their own texts */
    }
    return "its connection is down";
}

static weft_status replaced(struct weft_worker *worker, uint32_t shard)
{
    const struct weft_launch_address *address = &worker->servers[shard].address;
    return weft_fail(&worker->error, WEFT_PEER,
                     "the server of shard %u at %s:%u closed the connection: another process "
                     "has the rank of worker %u now. Give each worker a rank of its own. A "
                     "process that was replaced because it did not answer cannot go on",
                     shard, address->host, address->port, worker->rank);
}

weft_status weft_worker_gone(struct weft_worker *worker, uint32_t shard)
{
    char why[48], hint[WEFT_SECURITY_HINT_BYTES];
    if (shard >= worker->shards || !worker->servers[shard].is_down) {
        (void)weft_worker_is_down(worker, &shard);
    }
    if (shard >= worker->shards) {
        return weft_fail(&worker->error, WEFT_PEER,
                         "the connection to a server was lost; connect again");
    }
    const struct weft_worker_server *server = &worker->servers[shard];
    if (server->is_down && server->down == WEFT_DOWN_REPLACED) {
        return replaced(worker, shard);
    }
    snprintf(why, sizeof(why), "it has not answered for %.4g s",
             (double)worker->peer_timeout_ns / (double)WEFT_NS_PER_S);
    (void)weft_worker_hint(worker, hint);
    return weft_fail(&worker->error, WEFT_PEER, "the server of shard %u at %s:%u is gone: %s; %s",
                     shard, server->address.host, server->address.port,
                     !server->is_down                   ? "its reply was incomplete"
                     : server->down == WEFT_DOWN_SILENT ? why
                                                        : down_text(server->down),
                     hint[0] != '\0' ? hint : "see its output, then connect again");
}

weft_status weft_worker_lost(struct weft_worker *worker)
{
    struct weft_ps_clock_refusal refusal;
    uint32_t shard;
    if (weft_worker_is_down(worker, &shard) || !weft_ps_clock_refused(worker->client, &refusal)) {
        return weft_worker_gone(worker, UINT32_MAX);
    }
    const struct weft_launch_address *address = &worker->servers[refusal.shard].address;
    if (refusal.status != WEFT_STATE) {
        return weft_fail(&worker->error, WEFT_PEER,
                         "the server of shard %u at %s:%u was restarted and cannot continue "
                         "table %u: %s; start it from the job's checkpoints, or restart the job",
                         refusal.shard, address->host, address->port, refusal.table,
                         refusal.status == WEFT_DATA ? weft_rpc_status_text(refusal.rpc_status)
                                                     : weft_status_text(refusal.status));
    }
    return weft_fail(&worker->error, WEFT_PEER,
                     "the server of shard %u at %s:%u refused clock %u of worker %u in table "
                     "%u: it has another clock. Another process has this rank, or the server "
                     "lost its state; end the other process, or restart the job",
                     refusal.shard, address->host, address->port, refusal.clock, worker->rank,
                     refusal.table);
}

weft_status weft_worker_refused(struct weft_worker *worker, const char *what,
                                const struct weft_ps_result *result)
{
    if (result->status == WEFT_PEER) {
        return weft_worker_gone(worker, result->shard);
    }
    const struct weft_launch_address *address = &worker->servers[result->shard].address;
    return weft_fail(&worker->error, result->status, "%s: refused by shard %u at %s:%u: %s", what,
                     result->shard, address->host, address->port,
                     result->status == WEFT_DATA ? weft_rpc_status_text(result->rpc_status)
                                                 : weft_status_text(result->status));
}
