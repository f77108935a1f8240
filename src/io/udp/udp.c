#include "io/udp/udp.h"

#include "base/assert.h"
#include "io/driver_base.h"
#include "io/random.h"
#include "io/sock_addr.h"
#include "io/udp/blocking_receive.h"
#include "io/udp/delayed_ack.h"
#include "io/udp/errors.h"
#include "io/udp/rx.h"
#include "io/udp/socket.h"
#include "io/udp/tx.h"
#include "wire/packet.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    SOCKET_BUFFER_BYTES = 4 << 20,
    SURE_BYTES = 1200, /* UDP payload that passes everywhere */
    /* Bursts sent before the socket is looked at again: acknowledgements must not wait for a whole
     * window to be copied. */
    FLUSH_BURSTS_MAX = 16,
    PUT_OFF_BATCHES_MAX = 8, /* for timers: 256 datagrams of as many peers */
    KERNEL_HEAD_BYTES = 832,
};

struct weft_udp {
    struct weft_driver base;
    int socket_fd;
    struct weft_blocking_receive blocking;
    bool slept;   /* this step, and not inside the receive call */
    bool flowing; /* the last step took datagrams */
    bool handled; /* the handler has been called since the endpoint was last touched */
    uint64_t taken_ns; /* when the last batch came out of the socket */
    bool more_to_receive; /* the last batch was full */
    bool more_to_send;    /* the last flush stopped at its limit */
    uint32_t timers_put_off; /* batches since the timers were due */
    struct weft_ep *ep;
    struct weft_rx *rx;
    struct weft_sender sender;
    struct weft_udp_errors errors;
    bool gso_before; /* the socket asked for errors, which may look like a refusal of GSO */
    struct weft_loss loss;
    struct weft_sock_facts facts;
    uint32_t peers_max;
    struct weft_udp_observer observer;
    struct weft_delayed_ack *delayed_ack; /* NULL = nothing is delayed */
    struct weft_tx bursts[WEFT_TX_BATCH];
};

static const struct weft_driver_ops udp_ops;

static struct weft_udp *udp_of(struct weft_driver *driver)
{
    return (struct weft_udp *)driver; /* base is its first member */
}

/* ---- life ------------------------------------------------------------------------------------ */

/* Unix time in ms, then 22 random bits: of two processes of one rank the later one has the larger. Of
 * two endpoints of this process, too, in one ms. */
static uint64_t new_incarnation(void)
{
    static atomic_uint_fast64_t last;
    struct timespec now;
    uint64_t random;
    weft_os_random(&random, sizeof(random));
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / WEFT_NS_PER_MS;
    uint64_t wanted = ms << 22 | random >> 42, before = atomic_load(&last), next;
    do {
        next = weft_max_u64(wanted, before + 1);
    } while (!atomic_compare_exchange_weak(&last, &before, next));
    return next;
}

void weft_udp_config_default(struct weft_udp_config *config_p)
{
    *config_p = (struct weft_udp_config){
        .host = "127.0.0.1",
        .socket_buffer_bytes = SOCKET_BUFFER_BYTES,
        .gso = 1,
        .gro = 1,
    };
    weft_ep_config_default(&config_p->ep);
    config_p->ep.incarnation = new_incarnation();
    weft_os_random(&config_p->ep.seed, sizeof(config_p->ep.seed));
}

/* DATA packets that half of the receive buffer holds. The kernel counts more than the bytes of a
 * datagram: a page's fraction and its own head (KERNEL_HEAD_BYTES, as `truesize` shows it). */
static uint32_t window_of(uint32_t wanted, uint32_t packet_bytes, uint32_t buffer_bytes)
{
    uint32_t packets = buffer_bytes / 2 / (packet_bytes + KERNEL_HEAD_BYTES);
    return (uint32_t)weft_min_u64(wanted, weft_max_u64(packets, 1));
}

static weft_status open_parts(const struct weft_udp_config *config, struct weft_udp *udp,
                              struct weft_error *error)
{
    struct weft_addr addr;
    weft_status status = weft_sock_addr_usable(config->host, config->port, udp->base.loopback_only, &addr,
                                               error);
    if (status != WEFT_OK) {
        return status;
    }
    struct weft_sock_request request = {.buffer_bytes = config->socket_buffer_bytes,
                                        .gro = config->gro != 0};
    status = weft_sock_open(&addr, &request, &udp->socket_fd, &udp->facts, error);
    if (status != WEFT_OK) {
        return status;
    }
    udp->base.family = weft_sock_addr_family(&addr);
    udp->base.port = udp->facts.port;
    status = weft_driver_watch(&udp->base, udp->socket_fd, error);
    if (status != WEFT_OK) {
        return status;
    }
    if (config->blocking_receive > 0 && weft_sock_addr_is_loopback(&addr) && config->loss.loss_ppm == 0) {
        (void)!weft_blocking_receive_open(&udp->blocking, udp->socket_fd, &udp->facts.bound,
                                  config->blocking_receive);
    }
    status = weft_rx_new(udp->socket_fd, &udp->rx);
    if (status != WEFT_OK) {
        return weft_fail(error, status, "no memory for receive buffers");
    }
    struct weft_ep_config ep = config->ep;
    if (weft_sock_addr_is_loopback(&addr) && config->loopback_packet_bytes != 0) {
        ep.packet_bytes = config->loopback_packet_bytes;
    }
    ep.rx_window = window_of(ep.rx_window, ep.packet_bytes, udp->facts.recv_buffer_bytes);
    ep.same_host = weft_sock_addr_is_loopback(&addr); /* a socket bound to it reaches nothing else */
    ep.host_queue = !ep.same_host; /* on loopback nothing queues */
    if (ep.packet_bytes_sure == 0 && !weft_sock_addr_is_loopback(&addr)) {
        ep.packet_bytes_sure = SURE_BYTES; /* longer ones are asked for first */
    }
    status = weft_ep_new(&ep, &udp->ep);
    if (status != WEFT_OK) {
        return weft_fail(error, status, "the endpoint: %s", weft_status_text(status));
    }
    return WEFT_OK;
}

static void release(struct weft_udp *udp)
{
    weft_delayed_ack_free(udp->delayed_ack);
    weft_ep_free(udp->ep);
    weft_rx_free(udp->rx);
    weft_poller_close(&udp->base.poller);
    if (udp->socket_fd >= 0) {
        (void)close(udp->socket_fd);
    }
    free(udp);
}

static void send_delayed(void *arg);

static weft_status open_delayed_ack(const struct weft_udp_config *config, struct weft_udp *udp,
                             struct weft_error *error)
{
    const struct weft_delayed_ack_config delayed = {
        .gap_ns = config->delayed_ack_ns,
        .inner = weft_ep_msgr(udp->ep),
        .send = send_delayed,
        .arg = udp,
    };
    weft_status status = weft_delayed_ack_new(&delayed, &udp->delayed_ack);
    return status == WEFT_OK ? status : weft_fail(error, status, "no memory for a socket");
}

weft_status weft_udp_open(const struct weft_udp_config *config, struct weft_driver **driver_p,
                          struct weft_error *error)
{
    if (config->loss.loss_ppm > WEFT_PPM) {
        return weft_fail(error, WEFT_INVALID, "loss of %u parts per million is more than all",
                         config->loss.loss_ppm);
    }
    if (config->delayed_ack_ns > 0 && config->before_send.call != NULL) {
        return weft_fail(error, WEFT_INVALID,
                         "before_send does not go with delayed_ack_ns, whose thread sends, too; set "
                         "delayed_ack_ns to 0");
    }
    struct weft_udp *udp = calloc(1, sizeof(*udp));
    if (udp == NULL) {
        return weft_fail(error, WEFT_NOMEM, "no memory for a socket");
    }
    const struct weft_driver_setup setup = {.before_send = config->before_send,
                                            .busy_poll_us = config->busy_poll_us,
                                            .mode = config->ep.mode,
                                            .insecure_network = config->insecure_network};
    weft_driver_init(&udp->base, &udp_ops, &setup);
    udp->socket_fd = -1;
    weft_blocking_receive_init(&udp->blocking);
    weft_status status = open_parts(config, udp, error);
    if (status == WEFT_OK && config->delayed_ack_ns > 0) {
        status = open_delayed_ack(config, udp, error);
    }
    if (status != WEFT_OK) {
        release(udp);
        return status;
    }
    weft_sender_init(&udp->sender, udp->socket_fd, udp->base.family,
                     udp->facts.gso && config->gso != 0);
    weft_udp_errors_init(&udp->errors, udp->socket_fd, udp->base.family);
    udp->peers_max = config->ep.peers_max;
    udp->observer = config->observer;
    weft_loss_init(&udp->loss, &config->loss);
    udp->base.msgr = udp->delayed_ack != NULL ? weft_delayed_ack_msgr(udp->delayed_ack)
                                              : weft_ep_msgr(udp->ep);
    weft_clock_timers_exact();
    *driver_p = &udp->base;
    return WEFT_OK;
}

/* ---- progress -------------------------------------------------------------------------------- */

/* The next burst. The endpoint may have to know first what waits in the kernel; not before what this
 * batch holds is there, too. */
static bool next_burst(struct weft_udp *udp, uint64_t now_ns, uint32_t count)
{
    uint32_t packets = weft_ep_send(udp->ep, now_ns, &udp->bursts[count]);
    if (packets == 0 && count == 0 && weft_ep_queue_asked(udp->ep)) {
        weft_ep_queued(udp->ep, weft_sock_queued(udp->socket_fd), now_ns);
        packets = weft_ep_send(udp->ep, now_ns, &udp->bursts[count]);
    }
    return packets > 0;
}

/* Single packets share a system call; several of one burst go at once, not when the next are built.
 * False: there is no more to send. */
static bool fill_batch(struct weft_udp *udp, uint64_t now_ns, uint32_t *count_p)
{
    uint32_t count = 0;
    bool more = true;
    bool single = true;
    while (more && single && count < WEFT_TX_BATCH) {
        more = next_burst(udp, now_ns, count);
        single = more && udp->bursts[count].packets == 1;
        count += more;
    }
    *count_p = count;
    return more || weft_ep_queue_asked(udp->ep);
}

static void flush(struct weft_udp *udp, uint64_t now_ns)
{
    uint32_t bursts = 0;
    bool more = true;
    while (more && bursts < FLUSH_BURSTS_MAX) {
        uint32_t count;
        more = fill_batch(udp, now_ns, &count);
        if (count > 0) {
            weft_driver_call_before_send(&udp->base);
            weft_sender_send(&udp->sender, udp->bursts, count, &udp->base.socket);
        }
        if (udp->sender.too_big_bytes != 0) {
            if (!udp->errors.on) { /* else it may be ICMP, which anybody can send */
                weft_ep_too_big(udp->ep, &udp->sender.too_big_addr, udp->sender.too_big_bytes,
                                now_ns);
            }
            udp->sender.too_big_bytes = 0;
        }
        bursts += count;
        now_ns = more ? weft_clock_now_ns() : now_ns;
    }
    udp->more_to_send = more;
}

static void flush_all(struct weft_udp *udp)
{
    do {
        flush(udp, weft_clock_now_ns());
    } while (udp->more_to_send);
}

static void send_delayed(void *arg)
{
    flush_all(arg);
}

static void take_buffer(struct weft_udp *udp, const struct weft_rx_buffer *buffer, uint64_t now_ns,
                        weft_driver_handler *handler, void *arg)
{
    uint32_t at = 0;
    if (weft_blocking_receive_is_wake(&udp->blocking, &buffer->from, buffer->count)) {
        return;
    }
    do { /* an empty datagram is one too */
        uint32_t left = buffer->count - at;
        uint32_t bytes = left < buffer->segment_bytes ? left : buffer->segment_bytes;
        if (left > bytes) {
            uint64_t next = weft_min_u64(left - bytes, buffer->segment_bytes);
            weft_ep_ahead_chunk(udp->ep, buffer->bytes + at + bytes, next);
        }
        udp->base.socket.datagrams_received++;
        udp->base.socket.bytes_received += bytes;
        if (weft_loss_next(&udp->loss)) {
            udp->base.socket.injected_drops++;
        } else {
            weft_ep_recv(udp->ep, &buffer->from, buffer->ecn, buffer->bytes + at, bytes,
                         buffer->at_ns, now_ns);
            handler(arg, now_ns);
            udp->handled = true;
        }
        at += bytes;
    } while (at < buffer->count);
}

/* One batch from the socket to the endpoint. Returns its datagrams. */
static uint32_t receive(struct weft_udp *udp, bool sleep, weft_driver_handler *handler, void *arg)
{
    const struct weft_rx_buffer *buffers;
    uint32_t count;
    uint64_t before = udp->base.socket.datagrams_received;
    (void)weft_rx_batch(udp->rx, sleep, &udp->base.socket, &udp->taken_ns, &buffers, &count);
    udp->more_to_receive = weft_rx_more(udp->rx);
    if (count > 0) {
        weft_ep_ahead(udp->ep, buffers[0].bytes, buffers[0].count);
    }
    for (uint32_t i = 0; i < count; i++) {
        if (i + 1 < count) {
            weft_ep_ahead(udp->ep, buffers[i + 1].bytes, buffers[i + 1].count);
            uint64_t first = weft_min_u64(buffers[i + 1].count, buffers[i + 1].segment_bytes);
            weft_ep_ahead_chunk(udp->ep, buffers[i + 1].bytes, first);
        }
        take_buffer(udp, &buffers[i], udp->taken_ns, handler, arg);
    }
    return (uint32_t)(udp->base.socket.datagrams_received - before);
}

/* Look at the socket for a while instead of sleeping at once. */
static uint32_t busy_poll(struct weft_udp *udp, weft_driver_handler *handler, void *arg)
{
    uint32_t taken;
    bool found;
    do {
        taken = receive(udp, false, handler, arg);
        found = taken > 0 || atomic_load(&udp->base.poller.woken) != 0;
    } while (!found && weft_busy_poll_again(&udp->base.busy_poll));
    weft_busy_poll_end(&udp->base.busy_poll, found);
    return taken;
}

/* Sleep inside the receive call. True when the step need not sleep any more. */
static bool receive_asleep(struct weft_udp *udp, weft_driver_handler *handler, void *arg,
                           uint32_t *taken_p)
{
    uint32_t taken = 0;
    bool signalled = false; /* which ends the other sleep, too */
    weft_blocking_receive_begin(&udp->blocking);
    if (atomic_load(&udp->base.poller.woken) == 0) {
        udp->base.socket.sleeps++;
        udp->base.socket.sleeps_receiving++;
        taken = receive(udp, true, handler, arg);
        signalled = weft_rx_interrupted(udp->rx);
    }
    weft_blocking_receive_end(&udp->blocking);
    bool woken = weft_poller_woken(&udp->base.poller);
    udp->base.socket.wakes += woken;
    udp->handled = udp->handled && !woken; /* what it was for may have come behind that look */
    weft_blocking_receive_note(&udp->blocking, taken > 0);
    *taken_p = taken;
    return taken > 0 || woken || signalled;
}

/* Where datagrams follow each other closely each would end a sleep of its own. False: nothing came last
 * time, or it is not worth it now. */
static bool nap(struct weft_udp *udp, uint64_t now_ns, uint64_t until_ns)
{
    uint64_t ns = udp->flowing && udp->base.busy_poll.ns == 0 ? weft_ep_batch_ns(udp->ep) : 0;
    if (ns == 0 || until_ns <= now_ns) {
        return false;
    }
    udp->base.socket.sleeps++;
    udp->base.socket.naps++;
    udp->base.socket.wakes += weft_poller_nap(&udp->base.poller, weft_min_u64(ns, until_ns - now_ns));
    return true;
}

/* Sleep as long as nothing has to be done; returns datagrams that busy polling took already. */
static uint32_t wait(struct weft_udp *udp, uint64_t now_ns, uint64_t timeout_ns,
                     weft_driver_handler *handler, void *arg)
{
    if (timeout_ns == 0 || udp->more_to_receive || udp->more_to_send) {
        return 0;
    }
    uint64_t until_ns = weft_ep_deadline(udp->ep);
    until_ns = weft_min_u64(until_ns, weft_time_add(now_ns, timeout_ns));
    if (nap(udp, now_ns, until_ns)) {
        return 0;
    }
    if (until_ns > now_ns && weft_busy_poll_begin(&udp->base.busy_poll, until_ns)) {
        uint32_t taken = busy_poll(udp, handler, arg);
        if (taken > 0) {
            return taken;
        }
        now_ns = weft_clock_now_ns();
    }
    if (until_ns > now_ns && weft_blocking_receive_due(&udp->blocking, until_ns - now_ns)) {
        uint32_t taken;
        if (receive_asleep(udp, handler, arg, &taken)) {
            return taken;
        }
    }
    if (until_ns > now_ns) {
        udp->slept = true;
        udp->base.socket.sleeps++;
        udp->base.socket.wakes += weft_poller_wait(&udp->base.poller, until_ns);
    }
    return 0;
}

/* What the timers wait for may lie in the socket: with hundreds of peers a batch is the datagrams of
 * a few, and a timer that does not look behind it asks those for an answer that is here, who answer
 * once more. So what is there is taken first; but not for ever, for others wait for what timers do. */
static void timers(struct weft_udp *udp, uint64_t now_ns)
{
    if (weft_ep_deadline(udp->ep) > now_ns) {
        udp->timers_put_off = 0;
    } else if (udp->more_to_receive && udp->timers_put_off < PUT_OFF_BATCHES_MAX) {
        udp->timers_put_off++;
    } else {
        udp->timers_put_off = 0;
        udp->handled = false;
        weft_ep_on_deadline(udp->ep, now_ns);
    }
}

static void observe(struct weft_udp *udp, bool last)
{
    if (udp->observer.observe != NULL) {
        udp->observer.observe(udp->observer.arg, udp->ep, last);
    }
}

/* The end of a step: say what there is to say, or leave it for the next. */
static void leave(struct weft_udp *udp, uint64_t now_ns)
{
    bool may_wait = udp->delayed_ack != NULL && weft_ep_only_done(udp->ep);
    bool later = may_wait && weft_delayed_ack_pays(udp->delayed_ack);
    if (!later) {
        flush(udp, weft_clock_now_ns());
    }
    observe(udp, false);
    if (may_wait) {
        udp->base.socket.acks_delayed += later;
        weft_delayed_ack_leave(udp->delayed_ack, later, now_ns);
    }
}

static uint32_t udp_step(struct weft_driver *driver, uint64_t timeout_ns,
                         weft_driver_handler *handler, void *arg)
{
    struct weft_udp *udp = udp_of(driver);
    uint64_t now_ns = weft_clock_now_ns();
    if (udp->delayed_ack != NULL) {
        weft_delayed_ack_return(udp->delayed_ack, now_ns);
    }
    flush(udp, now_ns);
    udp->slept = udp->handled = false;
    uint32_t taken = wait(udp, now_ns, timeout_ns, handler, arg);
    if (taken == 0) {
        taken = receive(udp, false, handler, arg);
    }
    if (udp->slept) {
        weft_blocking_receive_note(&udp->blocking, taken > 0);
    }
    udp->flowing = taken > 0;
    if (weft_udp_errors_read(&udp->errors, udp->ep, &udp->base.unreached, &udp->base.socket)) {
        udp->sender.gso = udp->gso_before;
    }
    now_ns = taken > 0 ? udp->taken_ns : weft_clock_now_ns(); /* reading it costs, too */
    timers(udp, now_ns);
    if (!udp->handled) {
        handler(arg, now_ns);
    }
    leave(udp, now_ns);
    return taken;
}

static bool udp_rest(struct weft_driver *driver, uint64_t until_ns)
{
    struct weft_udp *udp = udp_of(driver);
    (void)weft_delayed_ack_enter(udp->delayed_ack);
    until_ns = weft_min_u64(until_ns, weft_ep_deadline(udp->ep));
    if (udp->more_to_receive || udp->more_to_send || until_ns <= weft_clock_now_ns()) {
        return false;
    }
    weft_poller_prepare(&driver->poller, until_ns);
    return true;
}

static void udp_wake(struct weft_driver *driver)
{
    weft_poller_note_wake(&driver->poller);
    weft_blocking_receive_wake(&udp_of(driver)->blocking);
    weft_poller_wake(&driver->poller); /* last: the thread that is woken may close at once */
}

static void udp_flush(struct weft_driver *driver)
{
    struct weft_udp *udp = udp_of(driver);
    bool entered = weft_udp_enter(udp);
    flush_all(udp);
    weft_udp_exit(udp, entered);
}

static void udp_idle(struct weft_driver *driver)
{
    struct weft_udp *udp = udp_of(driver);
    (void)weft_delayed_ack_enter(udp->delayed_ack);
    weft_ep_idle(udp->ep, weft_clock_now_ns());
    flush_all(udp);
}

/* An answer says that the other end knows; without one CLOSE is repeated, for a short while. */
static bool close_unanswered(struct weft_driver *driver)
{
    return weft_ep_busy(udp_of(driver)->ep);
}

static void udp_close(struct weft_driver *driver)
{
    struct weft_udp *udp = udp_of(driver);
    (void)weft_delayed_ack_enter(udp->delayed_ack);
    for (weft_peer peer = 0; peer < udp->peers_max; peer++) {
        weft_ep_close(udp->ep, peer, weft_clock_now_ns());
    }
    weft_driver_finish(driver, close_unanswered);
    flush_all(udp);
    observe(udp, true);
    release(udp);
}

/* ---- the rest -------------------------------------------------------------------------------- */

static weft_status udp_connect(struct weft_driver *driver, const struct weft_addr *addr,
                               weft_peer *peer_p)
{
    struct weft_udp *udp = udp_of(driver);
    (void)weft_delayed_ack_enter(udp->delayed_ack); /* a step follows, or there is no connection */
    weft_status status = weft_ep_connect(udp->ep, addr, weft_clock_now_ns(), peer_p);
    if (status == WEFT_OK) {
        udp->gso_before = udp->errors.on ? udp->gso_before : udp->sender.gso;
        weft_udp_errors_watch(&udp->errors);
    }
    return status;
}

static void udp_disconnect(struct weft_driver *driver, weft_peer peer, bool replaced)
{
    struct weft_udp *udp = udp_of(driver);
    bool entered = weft_udp_enter(udp);
    (replaced ? weft_ep_refuse : weft_ep_close)(udp->ep, peer, weft_clock_now_ns());
    weft_udp_exit(udp, entered);
}

static void udp_counters(struct weft_driver *driver, struct weft_driver_counters *counters_p)
{
    struct weft_udp *udp = udp_of(driver);
    bool entered = weft_udp_enter(udp);
    counters_p->socket = *weft_udp_counters(udp);
    counters_p->ep = *weft_ep_counters(udp->ep);
    weft_udp_exit(udp, entered);
}

static bool udp_busy(struct weft_driver *driver)
{
    struct weft_udp *udp = udp_of(driver);
    bool entered = weft_udp_enter(udp);
    bool busy = weft_ep_busy(udp->ep);
    weft_udp_exit(udp, entered);
    return busy;
}

static enum weft_ep_hint udp_hint(struct weft_driver *driver)
{
    struct weft_udp *udp = udp_of(driver);
    bool entered = weft_udp_enter(udp);
    enum weft_ep_hint hint = weft_ep_hint(udp->ep);
    weft_udp_exit(udp, entered);
    return hint;
}

static uint64_t udp_srtt_ns(struct weft_driver *driver, weft_peer peer)
{
    struct weft_udp *udp = udp_of(driver);
    bool entered = weft_udp_enter(udp);
    uint64_t srtt_ns = weft_ep_srtt_ns(udp->ep, peer);
    weft_udp_exit(udp, entered);
    return srtt_ns;
}

static uint32_t udp_grid(struct weft_driver *driver, weft_peer peer, uint16_t elem_bytes,
                         uint32_t total)
{
    struct weft_udp *udp = udp_of(driver);
    bool entered = weft_udp_enter(udp);
    uint32_t elems = weft_ep_grid(udp->ep, peer, elem_bytes, total);
    weft_udp_exit(udp, entered);
    return elems;
}

static const struct weft_driver_ops udp_ops = {
    .kind = WEFT_DRIVER_UDP,
    .connect = udp_connect,
    .disconnect = udp_disconnect,
    .step = udp_step,
    .rest = udp_rest,
    .wake = udp_wake,
    .flush = udp_flush,
    .idle = udp_idle,
    .close = udp_close,
    .counters = udp_counters,
    .busy = udp_busy,
    .hint = udp_hint,
    .srtt_ns = udp_srtt_ns,
    .grid = udp_grid,
};

struct weft_udp *weft_driver_udp(struct weft_driver *driver)
{
    return driver->ops == &udp_ops ? udp_of(driver) : NULL;
}

const char *weft_udp_bind_towards(const char *const *hosts, uint32_t count)
{
    bool v6 = false;
    bool beyond = false;
    for (uint32_t i = 0; i < count; i++) {
        struct weft_addr addr;
        if (weft_sock_addr_parse(hosts[i], 0, &addr, NULL) == WEFT_OK) {
            v6 = i == 0 ? weft_sock_addr_family(&addr) == AF_INET6 : v6;
            beyond = beyond || !weft_sock_addr_is_loopback(&addr);
        }
    }
    if (v6) {
        return beyond ? "::" : "::1";
    }
    return beyond ? "0.0.0.0" : "127.0.0.1";
}

bool weft_udp_enter(struct weft_udp *udp)
{
    return weft_delayed_ack_enter(udp->delayed_ack);
}

void weft_udp_exit(struct weft_udp *udp, bool entered)
{
    weft_delayed_ack_exit(udp->delayed_ack, entered);
}

struct weft_ep *weft_udp_ep(struct weft_udp *udp)
{
    return udp->ep;
}

const struct weft_socket_counters *weft_udp_counters(struct weft_udp *udp)
{
    udp->base.socket.acks_delayed_sent = weft_delayed_ack_sent(udp->delayed_ack);
    return &udp->base.socket;
}

void weft_udp_facts(const struct weft_udp *udp, struct weft_udp_facts *facts_p)
{
    *facts_p = (struct weft_udp_facts){
        .recv_buffer_bytes = udp->facts.recv_buffer_bytes,
        .send_buffer_bytes = udp->facts.send_buffer_bytes,
        .gso = udp->sender.gso,
        .gro = udp->facts.gro,
        .timestamps = udp->facts.timestamps,
        .ecn = udp->facts.ecn,
    };
}
