/* The path to a peer: packet size (path MTU discovery), ECN validation, and the peer's address
 * (path validation).
 *
 * Packet size. A connection starts with a size that is known to pass, and probes for longer ones. A
 * probe is a separate packet, a PING with padding, and does not count in bytes in flight. The
 * largest allowed size is probed first, together with that of standard Ethernet, so that on most
 * networks one round trip is enough. Then the usual sizes are probed downwards, then the remaining
 * interval is halved. A size is abandoned after three tries. A black hole is suspected if packets
 * longer than the base are lost twice, sent at least a round trip apart, while shorter packets pass
 * each time and no packet of that length does. The cause may be a smaller path MTU, but also a
 * receiver without posted memory for these packets, or a full switch buffer. The size in use is
 * therefore probed like a new size. If the probe fails, the packet size is set to the base, and the
 * search starts again. Open messages keep their grid; their packets may then be fragmented.
 *
 * ECN. Marks are used once the peer has counted as many marked packets as it has acknowledged.
 * If the counts decrease or are too small, a node on the path clears the marks. If no packet of the
 * test arrives, a node drops marked packets. In both cases the path is used without ECN.
 *
 * Address. A packet from a new address only causes a PATH_CHALLENGE to that address, with a random
 * token: at most one packet of three times as many bytes, ten times a second. The peer has migrated
 * if that address replies with the token. Only then is the address adopted, and the state of the
 * old path (round trip, window, size, ECN) discarded. A copy of a packet, sent from a third
 * address, therefore has no effect. It does not delay a migration either: four tokens are valid at
 * a time, and if no packet arrived from the old address since the last challenge, the limit of ten
 * a second applies to each address separately. With one token and one limit, a copy that arrived
 * before each probe used up the challenge of the probe's address, and a migration was not detected
 * for seconds. Without a common limit while packets arrive from the old address, each copy of a
 * packet would cost a packet. An attacker that sends four copies from other addresses within a
 * round trip of each challenge can still delay a migration.
 *
 * Source: docs/PROTOCOL.md section 9; RFC 8899 sections 4 and 5; RFC 9000 sections 9, 13.4 and 14.
 */
#include "core/internal.h"

#include <string.h>

enum {
    BASE_BYTES = 1200,  /* RFC 9000 section 14.1 */
    PLAIN_BYTES = 1472, /* IPv4 in frames of 1,500 bytes */
    PROBE_TRIES = 3,
    SEARCH_GRAIN = 16, /* the search stops when the interval is smaller */
    BLACK_HOLE_ROUNDS = 2,
    ECN_TEST_PACKETS = 64,
    ECN_LOST_PACKETS = 5,
    AMPLIFICATION = 3,
};

static const uint64_t probe_wait_ns_min = 10 * WEFT_NS_PER_MS;
static const uint64_t probe_wait_ns_max = 250 * WEFT_NS_PER_MS;
static const uint64_t raise_after_ns = 600 * WEFT_NS_PER_S;
static const uint64_t challenge_every_ns = 100 * WEFT_NS_PER_MS;

/* UDP payloads of full Ethernet frames of 1,500 and 9,000 bytes, with IPv6 and IPv4. */
static const uint16_t usual_bytes[] = {1452, 1472, 8952, 8972, 65000};

/* ---- packet size ----------------------------------------------------------------------------- */

uint32_t weft_core_path_room(const struct peer *p, uint32_t bytes)
{
    return bytes - secure_tag_bytes(&p->sec) + WEFT_TAG_BYTES;
}

static void doubt_end(struct path *path)
{
    path->large_lost = 0;
    path->large_lost_ns = 0;
    path->large_lost_bytes = 0;
}

static void size_set(struct peer *p, uint32_t bytes)
{
    struct path *path = &p->path;
    p->path.packet_bytes = bytes;
    weft_cc_resize(&p->cc, bytes);
    /* Packets sent earlier do not prove that this size passes. */
    path->large_pn = p->recovery.pn_next - 1;
    path->large_bytes = UINT32_MAX;
    doubt_end(path);
}

/* The largest usual size between the two; 0 = none. */
static uint32_t usual_between(uint32_t above, uint32_t below)
{
    uint32_t best = 0;
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(usual_bytes); i++) {
        if (usual_bytes[i] > above && usual_bytes[i] < below) {
            best = usual_bytes[i];
        }
    }
    return best;
}

static uint32_t search_next(const struct peer *p)
{
    const struct path *path = &p->path;
    if (p->path.packet_bytes >= path->ceiling_bytes || path->fragment) {
        return 0;
    }
    if (path->refused_bytes > path->ceiling_bytes) {
        return path->ceiling_bytes;
    }
    if (path->refused_bytes <= p->path.packet_bytes + SEARCH_GRAIN) {
        return 0;
    }
    uint32_t usual = usual_between(p->path.packet_bytes, path->refused_bytes);
    return usual != 0 ? usual : (p->path.packet_bytes + path->refused_bytes) / 2;
}

static void search_go_on(struct weft_ep *ep, struct peer *p, uint64_t now_ns)
{
    struct path *path = &p->path;
    path->probe_pn = 0;
    path->probe_tries = 0;
    path->confirming = false;
    path->companion_bytes = 0;
    path->probe_bytes = search_next(p);
    path->probe_due = path->probe_bytes != 0;
    bool at_top = p->path.packet_bytes >= path->ceiling_bytes;
    path->raise_ns = path->probe_due || at_top ? WEFT_NEVER : now_ns + raise_after_ns;
    if (path->probe_due) {
        weft_core_peer_ready(ep, p);
    }
}

static void search_begin(struct weft_ep *ep, struct peer *p, uint64_t now_ns)
{
    p->path.refused_bytes = p->path.ceiling_bytes + 1;
    search_go_on(ep, p, now_ns);
    /* In addition to the largest size, probe that of standard Ethernet. */
    uint32_t below = (uint32_t)weft_min_u64(p->path.probe_bytes, PLAIN_BYTES + 1);
    p->path.companion_bytes = usual_between(p->path.packet_bytes, below);
}

static void back_to_base(struct weft_ep *ep, struct peer *p, uint64_t now_ns)
{
    size_set(p, p->path.base_bytes);
    search_begin(ep, p, now_ns);
}

static void probe_failed(struct weft_ep *ep, struct peer *p, uint64_t now_ns)
{
    struct path *path = &p->path;
    path->probe_pn = 0;
    if (++path->probe_tries < PROBE_TRIES) {
        path->probe_due = true;
        weft_core_peer_ready(ep, p);
        return;
    }
    if (path->confirming) {
        ep->counters.mtu_black_holes++;
        back_to_base(ep, p, now_ns);
        return;
    }
    path->refused_bytes = path->probe_bytes;
    search_go_on(ep, p, now_ns);
}

void weft_core_path_probe_timer(struct weft_ep *ep, struct peer *p, uint64_t now_ns)
{
    if (p->path.probe_pn != 0 && p->path.probe_ns <= now_ns) {
        probe_failed(ep, p, now_ns);
    }
}

static void probe_passed(struct weft_ep *ep, struct peer *p, uint32_t bytes, uint64_t now_ns)
{
    struct path *path = &p->path;
    if (bytes > p->path.packet_bytes && bytes <= path->ceiling_bytes && !path->fragment) {
        size_set(p, bytes);
        ep->counters.mtu_raised++;
        path->refused_bytes =
            path->refused_bytes <= bytes ? path->ceiling_bytes + 1 : path->refused_bytes;
    }
    if (bytes >= p->path.packet_bytes) {
        doubt_end(path);
    }
    /* If the companion probe arrived first, the longer probe is still in flight and keeps its
     * tries. */
    if (bytes >= path->probe_bytes && path->probe_bytes != 0) {
        search_go_on(ep, p, now_ns);
    }
}

static void large_lost(struct weft_ep *ep, struct peer *p, uint64_t pn,
                       const struct tx_packet *packet)
{
    struct path *path = &p->path;
    uint32_t bytes = weft_core_path_room(p, packet->bytes);
    bool large = bytes > path->base_bytes && bytes <= p->path.packet_bytes;
    bool passed_since = pn <= path->large_pn && bytes <= path->large_bytes;
    if (!large || passed_since || path->small_pn <= path->small_counted_pn ||
        packet->sent_ns < weft_time_add(path->large_lost_ns, p->recovery.srtt_ns)) {
        return; /* this round was already counted, or no short packet has passed since */
    }
    path->large_lost_bytes =
        path->large_lost == 0 ? bytes : (uint32_t)weft_min_u64(path->large_lost_bytes, bytes);
    path->small_counted_pn = path->small_pn;
    path->large_lost_ns = packet->sent_ns + 1;
    if (++path->large_lost >= BLACK_HOLE_ROUNDS && !path->confirming) {
        path->confirming = true;
        path->probe_bytes = p->path.packet_bytes;
        path->companion_bytes = 0;
        path->probe_tries = 0;
        path->probe_pn = 0;
        path->probe_due = true;
        weft_core_peer_ready(ep, p);
    }
}

void weft_ep_too_big(struct weft_ep *ep, const struct weft_addr *addr, uint32_t bytes,
                     uint64_t now_ns)
{
    for (uint32_t i = 0; i < ep->peers_used; i++) {
        struct peer *p = &ep->peers[i];
        struct path *path = &p->path;
        if (!peer_connected(p) || !addr_equal(&p->conn.addr, addr)) {
            continue;
        }
        ep->counters.mtu_too_big++;
        if (bytes <= path->base_bytes) {
            path->fragment = true;
            continue;
        }
        path->refused_bytes = (uint32_t)weft_min_u64(path->refused_bytes, bytes);
        if (p->path.packet_bytes >= bytes) {
            size_set(p, path->base_bytes);
        }
        search_go_on(ep, p, now_ns);
    }
}

uint32_t weft_ep_packet_bytes(const struct weft_ep *ep, weft_peer peer)
{
    bool there = peer < ep->peers_used && ep->peers[peer].conn.state != PEER_FREE;
    return there ? ep->peers[peer].path.packet_bytes : 0;
}

/* ---- ECN ------------------------------------------------------------------------------------- */

bool weft_core_ecn_marks(const struct weft_ep *ep, const struct peer *p)
{
    return ep->config.ecn && p->path.ecn != PATH_ECN_FAILED && p->path.ecn != PATH_ECN_UNKNOWN;
}

void weft_core_ecn_sent(struct peer *p)
{
    if (p->path.ecn == PATH_ECN_TESTING && ++p->path.ecn_sent >= ECN_TEST_PACKETS) {
        p->path.ecn = PATH_ECN_UNKNOWN; /* no more marks until the first ones are acknowledged */
    }
}

/* No replies: perhaps marked packets are dropped. */
void weft_core_ecn_silence(struct peer *p)
{
    if (p->path.ecn == PATH_ECN_TESTING) {
        p->path.ecn = PATH_ECN_UNKNOWN;
    }
}

static void ecn_fail(struct weft_ep *ep, struct peer *p)
{
    p->path.ecn = PATH_ECN_FAILED;
    p->path.ecn_capable = false;
    weft_cc_unmarked(&p->cc);
    ep->counters.ecn_failed++;
}

void weft_core_ecn_check(struct weft_ep *ep, struct peer *p, const struct weft_wire_ack *ack)
{
    struct path *path = &p->path;
    uint32_t acked = path->ecn_acked;
    path->ecn_acked = 0;
    path->ecn_arrives |= (int32_t)(ack->ect + ack->ce - path->ecn_ect - path->ecn_ce) > 0;
    if (ack->largest <= path->ecn_largest || path->ecn == PATH_ECN_FAILED) {
        return; /* a reordered old ACK: its counts are part of those seen already */
    }
    int32_t ect = (int32_t)(ack->ect - path->ecn_ect);
    int32_t ce = (int32_t)(ack->ce - path->ecn_ce);
    path->ecn_largest = ack->largest;
    path->ecn_ect = ack->ect;
    path->ecn_ce = ack->ce;
    if (!ep->config.ecn) {
        return;
    }
    if (ect < 0 || ce < 0 || (int64_t)ect + ce < acked) {
        ecn_fail(ep, p);
    } else if (acked > 0) {
        path->ecn = PATH_ECN_CAPABLE;
        p->path.ecn_capable = true;
    }
}

/* ---- results of loss detection --------------------------------------------------------------- */

/* A packet that passes is evidence for all sizes up to its own. */
static void size_passed(struct peer *p, uint64_t pn, uint32_t bytes)
{
    struct path *path = &p->path;
    if (bytes <= path->base_bytes || bytes < path->large_lost_bytes) {
        path->small_pn = weft_max_u64(path->small_pn, pn);
    }
    if (bytes > path->base_bytes && bytes <= p->path.packet_bytes && pn > path->large_pn) {
        path->large_pn = pn;
        path->large_bytes = bytes;
        if (bytes >= path->large_lost_bytes) {
            doubt_end(path);
        }
    }
}

void weft_core_path_acked(struct weft_ep *ep, struct peer *p, uint64_t pn,
                          const struct tx_packet *packet)
{
    struct path *path = &p->path;
    if (pn < path->first_pn) {
        return;
    }
    path->ecn_acked += packet->ect;
    if (packet->kind & TX_PACKET_MTU) {
        probe_passed(ep, p, packet->chunk, packet->sent_ns);
    } else {
        size_passed(p, pn, weft_core_path_room(p, packet->bytes));
    }
}

void weft_core_path_lost(struct weft_ep *ep, struct peer *p, uint64_t pn,
                         const struct tx_packet *packet)
{
    struct path *path = &p->path;
    if (pn < path->first_pn) {
        return;
    }
    if (packet->ect && !path->ecn_arrives && path->ecn != PATH_ECN_FAILED &&
        ++path->ecn_lost >= ECN_LOST_PACKETS) {
        ecn_fail(ep, p); /* only marked packets seem to be dropped */
    }
    if (packet->kind & TX_PACKET_MTU) {
        if (pn == path->probe_pn) {
            probe_failed(ep, p, packet->sent_ns);
        }
        return;
    }
    large_lost(ep, p, pn, packet);
}

/* ---- another address ------------------------------------------------------------------------- */

/* The path has changed: discard the state of the old one. RFC 9000 section 9.4. */
static void path_restart(struct weft_ep *ep, struct peer *p, uint64_t now_ns)
{
    recovery_path_changed(&p->recovery, now_ns);
    ack_echo_forget(&p->ack);
    pacer_restart(&p->pacer, now_ns);
    p->path.ecn = PATH_ECN_TESTING;
    p->path.ecn_sent = 0;
    p->path.ecn_lost = 0;
    p->path.ecn_arrives = false;
    p->path.ecn_capable = false;
    p->path.fragment = false;
    p->path.first_pn = p->recovery.pn_next;
    size_set(p, p->path.base_bytes);
    weft_cc_begin(&p->cc, p->cc.ops, p->path.packet_bytes, now_ns);
    search_begin(ep, p, now_ns);
}

/* The frames of a packet from another address that are processed. */
struct stray {
    bool response; /* PATH_RESPONSE with a valid token */
    bool idle;
};

static struct stray stray_look(const struct peer *p, const struct challenge *c,
                               const struct weft_wire_packet *packet)
{
    struct stray stray = {0};
    if (packet->control == NULL) {
        return stray;
    }
    struct weft_reader r = weft_reader_make(packet->control, packet->control_bytes);
    struct weft_wire_frame frame;
    while (weft_wire_frame_decode(&r, &frame)) {
        stray.response |=
            c != NULL && frame.type == WEFT_FRAME_PATH_RESPONSE && frame.token == c->token;
        stray.idle |= frame.type == WEFT_FRAME_ACK && (frame.ack.flags & WEFT_ACK_IDLE) != 0 &&
                      frame.ack.largest < p->recovery.pn_next;
    }
    return stray;
}

/* A peer that migrates and then sends IDLE replies to no challenge before it makes progress again,
 * and its old address no longer exists: it would be declared dead. IDLE, and the end of the idle
 * state, are therefore processed from any address. Nothing is sent in response. A copy has the same
 * content as the original, whose number is above those of all packets processed. In mode none, an
 * attacker that can forge a packet can also answer the challenge. */
static void stray_idle(struct weft_ep *ep, struct peer *p, const struct weft_wire_packet *packet,
                       bool idle, uint64_t now_ns)
{
    bool newest = packet->number > p->sec.seen_largest;
    if (p->conn.state != PEER_OPEN || !newest || (!idle && !p->conn.idle)) {
        return;
    }
    if (idle) {
        weft_core_idle_note(p, packet->number);
    } else {
        weft_core_awake_note(p, packet->number, now_ns);
    }
    weft_core_peer_ready(ep, p); /* its timers have changed */
}

static size_t packet_bytes(const struct weft_wire_packet *packet)
{
    size_t tag = packet->klass == WEFT_CLASS_PLAIN ? 0 : WEFT_TAG_BYTES;
    size_t control = packet->control == NULL ? 0 : 2 + packet->control_bytes;
    return weft_wire_header_bytes(packet->flags) + control + packet->data_bytes + tag;
}

static struct challenge *challenge_find(struct path *path, const struct weft_addr *addr)
{
    for (unsigned i = 0; i < CHALLENGES; i++) {
        if (path->challenge[i].at_ns != 0 && addr_equal(&path->challenge[i].addr, addr)) {
            return &path->challenge[i];
        }
    }
    return NULL;
}

/* A free entry, or the one with the oldest challenge. */
static struct challenge *challenge_oldest(struct path *path)
{
    struct challenge *oldest = &path->challenge[0];
    for (unsigned i = 1; i < CHALLENGES; i++) {
        if (path->challenge[i].at_ns < oldest->at_ns) {
            oldest = &path->challenge[i];
        }
    }
    return oldest;
}

static bool challenge_early(const struct peer *p, const struct challenge *asked, uint64_t now_ns)
{
    uint64_t last_ns = 0;
    for (unsigned i = 0; i < CHALLENGES; i++) {
        last_ns = weft_max_u64(last_ns, p->path.challenge[i].at_ns);
    }
    bool heard = p->conn.heard_ns >= last_ns; /* from its old address: it has not migrated */
    uint64_t since_ns = heard ? last_ns : asked != NULL ? asked->at_ns : 0;
    return since_ns != 0 && now_ns < since_ns + challenge_every_ns;
}

static void challenge(struct weft_ep *ep, struct peer *p, struct challenge *asked,
                      const struct weft_addr *addr, uint64_t now_ns)
{
    struct path *path = &p->path;
    struct challenge *c = asked != NULL ? asked : challenge_oldest(path);
    if (challenge_early(p, asked, now_ns)) {
        return;
    }
    if (asked == NULL) { /* otherwise a response in flight must remain valid */
        uint64_t token;
        if (!weft_core_secret_u64(ep, &token)) {
            return;
        }
        *c = (struct challenge){.addr = *addr, .token = token};
    }
    c->at_ns = now_ns;
    path->challenges_due |= (uint8_t)(1U << (c - path->challenge));
    weft_core_peer_ready(ep, p);
}

bool weft_core_path_stray(struct weft_ep *ep, struct peer *p, const struct weft_addr *from,
                          const struct weft_wire_packet *packet, uint64_t now_ns)
{
    struct path *path = &p->path;
    struct challenge *asked = challenge_find(path, from);
    const struct stray stray = stray_look(p, asked, packet);
    if (stray.response) {
        conn_move(&p->conn, from);
        memset(path->challenge, 0, sizeof(path->challenge));
        path->challenges_due = 0;
        ep->counters.path_changes++;
        path_restart(ep, p, now_ns);
        return true;
    }
    stray_idle(ep, p, packet, stray.idle, now_ns);
    size_t challenge_bytes = WEFT_HEADER_BYTES + 2 + WEFT_PATH_BYTES + WEFT_TAG_BYTES;
    if (AMPLIFICATION * packet_bytes(packet) >= challenge_bytes) {
        challenge(ep, p, asked, from, now_ns);
    }
    return false;
}

/* ---- life ------------------------------------------------------------------------------------ */

void weft_core_path_init(const struct weft_ep *ep, struct peer *p)
{
    const struct weft_ep_config *c = &ep->config;
    uint32_t sure = c->packet_bytes_sure == 0
                        ? c->packet_bytes
                        : (uint32_t)weft_min_u64(c->packet_bytes_sure, c->packet_bytes);
    p->path = (struct path){
        .packet_bytes = sure,
        .base_bytes = (uint32_t)weft_min_u64(BASE_BYTES, sure),
        .ceiling_bytes = c->packet_bytes,
        .refused_bytes = (uint32_t)c->packet_bytes + 1,
        .raise_ns = WEFT_NEVER,
    };
}

void weft_core_path_up(struct weft_ep *ep, struct peer *p, uint64_t now_ns)
{
    search_begin(ep, p, now_ns);
}

static uint32_t probe_build(struct weft_ep *ep, struct peer *p, uint32_t bytes, uint64_t now_ns,
                            struct weft_tx *tx)
{
    struct weft_wire_frame ping = {.type = WEFT_FRAME_PING};
    uint32_t bare = WEFT_HEADER_BYTES + 2 + WEFT_PING_BYTES + WEFT_TAG_BYTES;
    uint64_t pn = p->recovery.pn_next;
    ep->counters.mtu_probes++;
    if (weft_core_frame_build(ep, p, &p->conn.addr, &ping, bytes - bare, tx) == 0) {
        return 0;
    }
    weft_core_packet_sent(ep, p, now_ns, TX_PACKET_MTU, 0, bytes, 0);
    if (bytes == p->path.probe_bytes) {
        p->path.probe_pn = pn;
        uint64_t wait_ns = weft_max_u64(3 * weft_core_pto_base(p), probe_wait_ns_min);
        wait_ns = weft_min_u64(wait_ns, probe_wait_ns_max); /* srtt may be from a slower period */
        p->path.probe_ns = now_ns + (wait_ns << p->path.probe_tries);
    }
    return 1;
}

uint32_t weft_core_path_build(struct weft_ep *ep, struct peer *p, uint64_t now_ns,
                              struct weft_tx *tx)
{
    struct path *path = &p->path;
    if (path->challenges_due != 0) {
        const struct challenge *c = &path->challenge[__builtin_ctz(path->challenges_due)];
        struct weft_wire_frame frame = {.type = WEFT_FRAME_PATH_CHALLENGE, .token = c->token};
        path->challenges_due &= (uint8_t)(path->challenges_due - 1);
        ep->counters.path_challenges++;
        if (weft_core_frame_build(ep, p, &c->addr, &frame, 0, tx) == 0) {
            return 0;
        }
        weft_core_packet_sent(ep, p, now_ns, 0, 0, 0, 0);
        return 1;
    }
    if (p->conn.state != PEER_OPEN || p->conn.idle || p->conn.idle_sent) {
        return 0; /* after IDLE, a probe would end the idle state of this end */
    }
    if (path->raise_ns <= now_ns) { /* checked only when packets are sent, so it needs no timer */
        search_begin(ep, p, now_ns);
    }
    if (path->probe_due) {
        path->probe_due = false;
        return probe_build(ep, p, path->probe_bytes, now_ns, tx);
    }
    if (path->companion_bytes != 0) {
        uint32_t bytes = path->companion_bytes;
        path->companion_bytes = 0;
        return bytes > p->path.packet_bytes ? probe_build(ep, p, bytes, now_ns, tx) : 0;
    }
    return 0;
}
