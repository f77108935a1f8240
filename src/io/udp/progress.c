/* One step of the UDP driver: send what is ready, wait, receive a batch, run the timers, send what
 * is ready again.
 *
 * The waits, in this order, each only where it saves time: a short sleep without watching the
 * socket, so that several datagrams gather; busy polling; a blocking receive, on loopback; the
 * poller, which is always possible.
 */
#include "io/sock_addr.h"
#include "io/udp/internal.h"

enum {
    /* Bursts sent before the socket is read again: acknowledgements must not wait for a whole
     * window to be copied. */
    FLUSH_BURSTS_MAX = 16,
    PUT_OFF_BATCHES_MAX = 8, /* before timers run: 256 datagrams of as many peers */
};

/* ---- sending --------------------------------------------------------------------------------- */

/* Build the next burst. The endpoint may need to know first how many bytes are queued in the
 * kernel. That is read while the batch is empty, so that everything built so far is counted. */
static bool next_burst(struct weft_udp *udp, uint64_t now_ns, uint32_t count)
{
    uint32_t packets = weft_ep_send(udp->ep, now_ns, &udp->bursts[count]);
    if (packets == 0 && count == 0 && weft_ep_queue_asked(udp->ep)) {
        weft_ep_queue_siblings(udp->ep, weft_udp_has_siblings());
        const uint64_t queued_bytes = weft_sock_queued(udp->socket_fd);
        if (udp->link_to.bytes_used > 0 && weft_ep_link_asked(udp->ep, queued_bytes)) {
            weft_ep_link_sent(udp->ep, weft_link_counter_sent(&udp->link, &udp->link_to));
        }
        weft_ep_queued(udp->ep, queued_bytes, now_ns);
        packets = weft_ep_send(udp->ep, now_ns, &udp->bursts[count]);
    }
    return packets > 0;
}

/* Single packets share a system call; a burst of several packets is sent at once, before the next
 * is built. False: there is no more to send. */
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

/* Send at most FLUSH_BURSTS_MAX bursts; more_to_send says whether that was all. */
static void send_some(struct weft_udp *udp, uint64_t now_ns)
{
    uint32_t bursts = 0;
    bool more = true;
    while (more && bursts < FLUSH_BURSTS_MAX) {
        uint32_t count;
        more = fill_batch(udp, now_ns, &count);
        if (count > 0) {
            if (udp->link_pid != 0 && udp->link_to.bytes_used == 0 &&
                !weft_sock_addr_is_loopback(&udp->bursts[0].addr)) {
                udp->link_to = udp->bursts[0].addr;
            }
            weft_driver_call_before_send(&udp->base);
            weft_sender_send(&udp->sender, udp->bursts, count, &udp->base.socket);
        }
        if (udp->sender.too_big_bytes != 0) {
            if (!udp->errors.on) { /* otherwise the error may be from ICMP, which can be forged */
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

void weft_udp_send_all(struct weft_udp *udp)
{
    do {
        send_some(udp, weft_clock_now_ns());
    } while (udp->more_to_send);
}

/* ---- receiving ------------------------------------------------------------------------------- */

/* Pass the datagrams of one buffer to the endpoint, and call the handler after each. */
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
            weft_ep_prefetch_chunk(udp->ep, buffer->bytes + at + bytes, next);
        }
        udp->base.socket.datagrams_received++;
        udp->base.socket.bytes_received += bytes;
        if (weft_inject_loss_next(&udp->loss)) {
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

/* Pass one batch from the socket to the endpoint. Returns the number of its datagrams. */
static uint32_t receive(struct weft_udp *udp, bool sleep, weft_driver_handler *handler, void *arg)
{
    const struct weft_rx_buffer *buffers;
    uint32_t count;
    uint64_t before = udp->base.socket.datagrams_received;
    (void)weft_rx_batch(udp->rx, sleep, &udp->base.socket, &udp->taken_ns, &buffers, &count);
    udp->more_to_receive = weft_rx_more(udp->rx);
    if (count > 0) {
        weft_ep_prefetch(udp->ep, buffers[0].bytes, buffers[0].count);
    }
    for (uint32_t i = 0; i < count; i++) {
        if (i + 1 < count) {
            weft_ep_prefetch(udp->ep, buffers[i + 1].bytes, buffers[i + 1].count);
            uint64_t first = weft_min_u64(buffers[i + 1].count, buffers[i + 1].segment_bytes);
            weft_ep_prefetch_chunk(udp->ep, buffers[i + 1].bytes, first);
        }
        take_buffer(udp, &buffers[i], udp->taken_ns, handler, arg);
    }
    return (uint32_t)(udp->base.socket.datagrams_received - before);
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* Poll the socket for a while before a sleep. */
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
    bool signalled = false; /* a signal ends the poller's sleep, too */
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
    udp->handled = udp->handled && !woken; /* the wake may be newer than that call */
    weft_blocking_receive_note(&udp->blocking, taken > 0);
    *taken_p = taken;
    return taken > 0 || woken || signalled;
}

/* When datagrams follow each other closely, each would end a sleep: sleep without watching the
 * socket, so that several gather. False: the last step received none, or the endpoint advises
 * against it. */
static bool nap(struct weft_udp *udp, uint64_t now_ns, uint64_t until_ns)
{
    uint64_t ns = udp->flowing && udp->base.busy_poll.ns == 0 ? weft_ep_batch_ns(udp->ep) : 0;
    if (ns == 0 || until_ns <= now_ns) {
        return false;
    }
    udp->base.socket.sleeps++;
    udp->base.socket.naps++;
    ns = weft_min_u64(ns, until_ns - now_ns);
    udp->base.socket.wakes += weft_poller_nap(&udp->base.poller, ns);
    return true;
}

/* Sleep while there is nothing to do, in one of the four ways above. Returns the number of
 * datagrams received meanwhile. */
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

/* ---- a step ---------------------------------------------------------------------------------- */

/* The datagrams that the timers wait for may still be in the socket. With hundreds of peers a batch
 * has datagrams of only a few, and a timer would probe peers whose answer has arrived, which then
 * answer again. So the socket is read first, but for at most PUT_OFF_BATCHES_MAX batches, because
 * peers wait for what timers send. */
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

void weft_udp_observe(struct weft_udp *udp, bool last)
{
    if (udp->observer.observe != NULL) {
        udp->observer.observe(udp->observer.arg, udp->ep, last);
    }
}

/* The end of a step: send what is ready, or delay it to the next. */
static void leave(struct weft_udp *udp, uint64_t now_ns)
{
    bool may_wait = udp->delayed_ack != NULL && weft_ep_only_done(udp->ep);
    bool later = may_wait && weft_delayed_ack_pays(udp->delayed_ack);
    if (!later) {
        send_some(udp, weft_clock_now_ns());
    }
    weft_udp_observe(udp, false);
    if (may_wait) {
        udp->base.socket.acks_delayed += later;
        weft_delayed_ack_leave(udp->delayed_ack, later, now_ns);
    }
}

uint32_t weft_udp_step(struct weft_driver *driver, uint64_t timeout_ns,
                       weft_driver_handler *handler, void *arg)
{
    struct weft_udp *udp = weft_udp_of(driver);
    uint64_t now_ns = weft_clock_now_ns();
    if (udp->delayed_ack != NULL) {
        weft_delayed_ack_return(udp->delayed_ack, now_ns);
    }
    send_some(udp, now_ns);
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
    now_ns = taken > 0 ? udp->taken_ns : weft_clock_now_ns(); /* saves reading the clock */
    timers(udp, now_ns);
    if (!udp->handled) {
        handler(arg, now_ns);
    }
    leave(udp, now_ns);
    return taken;
}
