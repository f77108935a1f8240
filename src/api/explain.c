/* Error texts of a transport, each with the next action, and its counters. */
#include "api/internal.h"

#include <stddef.h>

enum {
    COUNTERS_BYTES_MIN =
        offsetof(struct weft_transport_counters, unauthentic_packets) + sizeof(uint64_t),
};

const char *weft_down_text(enum weft_transport_down down)
{
    switch (down) {
    case WEFT_TRANSPORT_DOWN_CLOSED:
        return "the peer closed the connection; see its own output for the reason";
    case WEFT_TRANSPORT_DOWN_NO_ANSWER:
        return "the peer did not reply; check that its program runs and accepts connections, that "
               "address and port are right, and that no firewall blocks UDP";
    case WEFT_TRANSPORT_DOWN_SILENT:
        return "the peer stopped replying; its process or the network is down, or it computed for "
               "longer than peer_timeout_ns without config.thread";
    case WEFT_TRANSPORT_DOWN_PROTOCOL:
        return "the peer violated the protocol; run the same weft version at both ends";
    case WEFT_TRANSPORT_DOWN_LOCAL:
        return "this end closed the connection";
    case WEFT_TRANSPORT_DOWN_RESTARTED:
        return "the peer was restarted and does not know this connection; connect again";
    case WEFT_TRANSPORT_DOWN_CRYPTO:
        return "a cryptographic operation failed in this process; after fork, open the transport "
               "in the child";
    case WEFT_TRANSPORT_DOWN_IDLE:
        return "the connection was idle for idle_timeout_ns, so this end closed it";
    }
    return "the connection ended for an unknown reason";
}

void weft_api_explain_down(struct weft_transport *t, enum weft_transport_down down)
{
    const char *hint = "";
    char unreached[WEFT_UNREACHED_BYTES];
    if (down == WEFT_TRANSPORT_DOWN_NO_ANSWER || down == WEFT_TRANSPORT_DOWN_SILENT) {
        hint = weft_ep_hint_text(weft_endpoint_hint(&t->endpoint));
    }
    if (down == WEFT_TRANSPORT_DOWN_NO_ANSWER && hint[0] == '\0') {
        weft_endpoint_unreached(&t->endpoint, unreached);
        hint = unreached;
    }
    (void)weft_fail(&t->error, WEFT_PEER, "%s%s%s", weft_down_text(down),
                    hint[0] != '\0' ? "; " : "", hint);
}

static uint64_t unauthentic_packets(const struct weft_ep_counters *ep)
{
    return ep->bad_tag + ep->bad_mode + ep->bad_key + ep->bad_version;
}

static uint64_t invalid_packets(const struct weft_ep_counters *ep)
{
    return ep->bad_short + ep->bad_class + ep->bad_peer + ep->bad_packet + ep->bad_range;
}

void weft_transport_counters_get(struct weft_transport *transport,
                                 struct weft_transport_counters *counters_p)
{
    struct weft_driver_counters c;
    weft_endpoint_counters(&transport->endpoint, &c);
    struct weft_transport_counters ours = {
        .datagrams_sent = c.socket.datagrams_sent,
        .datagrams_received = c.socket.datagrams_received,
        .bytes_sent = c.socket.bytes_sent,
        .bytes_received = c.socket.bytes_received,
        .data_packets_sent = c.ep.data_sent,
        .retransmitted_packets = c.ep.retransmitted_packets,
        .lost_packets = c.ep.lost_packets,
        .messages_sent = c.ep.messages_sent,
        .messages_received = c.ep.messages_received,
        .messages_short = c.ep.messages_short,
        .messages_unknown = c.ep.messages_unknown,
        .chunks_missing = c.ep.chunks_missing,
        .unmatched_packets = c.ep.no_memory,
        .invalid_packets = invalid_packets(&c.ep),
        .connections_refused = c.ep.hello_refused,
        .kernel_drops = c.socket.kernel_drops,
        .send_drops = c.socket.send_dropped,
        .injected_drops = c.socket.injected_drops,
        .unauthentic_packets = unauthentic_packets(&c.ep),
    };
    weft_api_struct_out(counters_p, &ours, sizeof(ours), COUNTERS_BYTES_MIN);
}

/* The causes are tried in order, the most specific first; the first whose counter grew is
 * reported. */
weft_status weft_api_explain_timeout(struct weft_transport *t,
                                     const struct weft_driver_counters *before, uint64_t timeout_ns)
{
    unsigned long long ms = timeout_ns / WEFT_NS_PER_MS;
    if (before == NULL) {
        return weft_fail(&t->error, WEFT_TIMEOUT, "no event within %llu ms; wait longer", ms);
    }
    struct weft_driver_counters now;
    weft_endpoint_counters(&t->endpoint, &now);
    const struct weft_ep_counters *a = &before->ep;
    const struct weft_ep_counters *b = &now.ep;
    const char *hint = "";
    if (unauthentic_packets(b) + b->refused > unauthentic_packets(a) + a->refused) {
        hint = weft_ep_hint_text(weft_endpoint_hint(&t->endpoint));
    }
    if (hint[0] != '\0') {
        return weft_fail(&t->error, WEFT_TIMEOUT, "no event within %llu ms; %s", ms, hint);
    }
    const struct {
        uint64_t grew;
        const char *sentence;
    } signs[] = {
        {unauthentic_packets(b) - unauthentic_packets(a),
         "forged or damaged packets arrived; check what else sends to this port"},
        {b->hello_refused - a->hello_refused,
         "requests for a connection were refused; set accept, or raise peers_max"},
        {b->no_memory - a->no_memory,
         "packets arrived that match no posted receive; post one with the sender's tag and at "
         "least as many bytes as the message"},
        {b->bad_range - a->bad_range,
         "packets arrived of messages longer than message_bytes_max, or outside of their message; "
         "set message_bytes_max to the same value at both ends"},
        {invalid_packets(b) - invalid_packets(a),
         "packets arrived of an unknown connection or of another program; check what else sends "
         "to this port"},
    };
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(signs); i++) {
        if (signs[i].grew > 0) {
            return weft_fail(&t->error, WEFT_TIMEOUT, "no event within %llu ms; %llu %s", ms,
                             (unsigned long long)signs[i].grew, signs[i].sentence);
        }
    }
    if (now.socket.datagrams_received == before->socket.datagrams_received) {
        return weft_fail(&t->error, WEFT_TIMEOUT,
                         "no event within %llu ms, and nothing arrived; check that the other end "
                         "runs and sends to this address and port %u",
                         ms, (unsigned)weft_transport_port(t));
    }
    return weft_fail(&t->error, WEFT_TIMEOUT,
                     "no event within %llu ms, although packets arrive; check that the receiver "
                     "has posted memory for the message's tag and length",
                     ms);
}
