/* Words for what happens between a worker and its servers, each with the next action. */
#include "api/ps_internal.h"

#include <stdio.h>

/* The endpoint's own words speak of the program's options. */
static const char *hint_text(enum weft_ep_hint hint)
{
    switch (hint) {
    case WEFT_HINT_KEY:
    case WEFT_HINT_TOLD_KEY:
        return "its job key is another; give worker and server the same key file";
    case WEFT_HINT_VERSION:
    case WEFT_HINT_TOLD_VERSION:
        return "it speaks another version of the protocol; install the same release at both ends";
    case WEFT_HINT_MODE:
    case WEFT_HINT_TOLD_MODE:
        return "its security mode is another; make config.security and the server's --security "
               "alike";
    case WEFT_HINT_CRYPTO:
        return "the cryptography of this process failed; a process that was forked connects anew";
    case WEFT_HINT_TOLD_FULL:
        return "it says that it has no room for one more worker; raise the server's --workers";
    case WEFT_HINT_TOLD_CLOSED:
        return "it says that it accepts no connections; check address and port";
    case WEFT_HINT_NONE:
        break;
    }
    return "";
}

bool weft_api_ps_hint(struct weft_ps *ps, char text_p[WEFT_UDP_UNREACHED_BYTES])
{
    enum weft_ep_hint hint = weft_endpoint_hint(&ps->endpoint);
    if (hint == WEFT_HINT_NONE) {
        weft_endpoint_unreached(&ps->endpoint, text_p);
        return false;
    }
    snprintf(text_p, WEFT_UDP_UNREACHED_BYTES, "%s", hint_text(hint));
    return hint != WEFT_HINT_TOLD_FULL;
}

bool weft_api_ps_any_down(const struct weft_ps *ps, uint32_t *shard_p)
{
    for (uint32_t s = 0; ps->any_down && s < ps->shards; s++) {
        if (ps->servers[s].is_down) {
            *shard_p = s;
            return true;
        }
    }
    return false;
}

static const char *down_text(enum weft_msg_down down)
{
    switch (down) {
    case WEFT_DOWN_CLOSED:
        return "it ended, or gave this connection up, or a later process has this rank";
    case WEFT_DOWN_SILENT:
        return "it did not answer for peer_timeout_ns: it died, or the network is cut";
    case WEFT_DOWN_PROTOCOL:
        return "it broke the protocol; run the same weft version at both ends";
    case WEFT_DOWN_LOCAL:
        return "this end closed the connection";
    case WEFT_DOWN_IDLE:
        return "nothing was outstanding for too long";
    case WEFT_DOWN_RESTARTED:
        return "it was started anew, or gave this worker up while that was silent (weft_ps_idle, "
               "or config.thread, where a step takes long)";
    case WEFT_DOWN_CRYPTO:
        return "the cryptography of this process failed; a process that was forked connects anew";
    case WEFT_DOWN_REPLACED:
        break; /* has words of its own */
    }
    return "its connection is down";
}

weft_status weft_api_ps_gone(struct weft_ps *ps, uint32_t shard)
{
    if (shard >= ps->shards || !ps->servers[shard].is_down) {
        (void)weft_api_ps_any_down(ps, &shard);
    }
    if (shard >= ps->shards) {
        return weft_io_fail(&ps->error, WEFT_PEER,
                            "a server did not keep what it promised; close, and connect again");
    }
    const struct ps_server *server = &ps->servers[shard];
    if (server->is_down && server->down == WEFT_DOWN_REPLACED) {
        return weft_io_fail(&ps->error, WEFT_PEER,
                            "the server of shard %u at %s:%u closed the connection: another process "
                            "has the rank of worker %u now. Give each worker a rank of its own. A "
                            "process that was replaced because it did not answer cannot go on",
                            shard, server->host, server->port, ps->worker);
    }
    return weft_io_fail(&ps->error, WEFT_PEER,
                        "the server of shard %u at %s:%u is gone: %s; see its output, close, and "
                        "connect again",
                        shard, server->host, server->port,
                        server->is_down ? down_text(server->down) : "the answer came in part only");
}

bool weft_api_ps_any_lost(const struct weft_ps *ps, uint32_t *shard_p)
{
    struct weft_ps_clock_refusal refusal;
    if (weft_api_ps_any_down(ps, shard_p)) {
        return true;
    }
    if (!weft_ps_clock_refused(ps->client, &refusal)) {
        return false;
    }
    *shard_p = refusal.shard;
    return true;
}

weft_status weft_api_ps_lost(struct weft_ps *ps)
{
    struct weft_ps_clock_refusal refusal;
    uint32_t shard;
    if (weft_api_ps_any_down(ps, &shard) || !weft_ps_clock_refused(ps->client, &refusal)) {
        return weft_api_ps_gone(ps, UINT32_MAX);
    }
    const struct ps_server *server = &ps->servers[refusal.shard];
    const char *name = ps->tables[refusal.table].name;
    if (refusal.status != WEFT_STATE) {
        const char *why = refusal.status == WEFT_DATA ? weft_rpc_status_text(refusal.rpc_status)
                                                      : weft_status_text(refusal.status);
        return weft_io_fail(&ps->error, WEFT_PEER,
                            "the server of shard %u at %s:%u came back and does not go on with %s: "
                            "%s; start it from the job's checkpoints, or the job anew",
                            refusal.shard, server->host, server->port, name, why);
    }
    return weft_io_fail(&ps->error, WEFT_PEER,
                        "the server of shard %u at %s:%u refused clock %u of worker %u in %s: it "
                        "knows another clock of this worker. Another process has this rank, or "
                        "the server lost what it knew; end the other process, or start the job "
                        "anew",
                        refusal.shard, server->host, server->port, refusal.clock, ps->worker, name);
}

weft_status weft_api_ps_refused(struct weft_ps *ps, const char *what,
                                const struct weft_ps_result *result)
{
    if (result->status == WEFT_PEER) {
        return weft_api_ps_gone(ps, result->shard);
    }
    const char *why = result->status == WEFT_DATA ? weft_rpc_status_text(result->rpc_status)
                                                  : weft_status_text(result->status);
    return weft_io_fail(&ps->error, result->status, "%s: refused by shard %u at %s:%u: %s", what,
                        result->shard, ps->servers[result->shard].host,
                        ps->servers[result->shard].port, why);
}
