#include "io/udp/udp.h"

#include "io/ep_config.h"
#include "io/random.h"
#include "io/sock_addr.h"
#include "io/udp/internal.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    SOCKET_BUFFER_BYTES = 4 << 20,
    SURE_BYTES = 1200, /* UDP payload that every path forwards */
    KERNEL_HEAD_BYTES = 832,
};

/* ---- opening --------------------------------------------------------------------------------- */

/* Unix time in ms, then 22 random bits: of two processes of one rank, the later one has the larger
 * value. So has the later of two endpoints that this process opens within one ms. */
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

/* The number of DATA packets that half of the receive buffer holds. The kernel counts more than the
 * bytes of a datagram: part of a page and its own header (KERNEL_HEAD_BYTES, as in `truesize`). */
static uint32_t window_of(uint32_t wanted, uint32_t packet_bytes, uint32_t buffer_bytes)
{
    uint32_t packets = buffer_bytes / 2 / (packet_bytes + KERNEL_HEAD_BYTES);
    return (uint32_t)weft_min_u64(wanted, weft_max_u64(packets, 1));
}

static weft_status open_socket(const struct weft_udp_config *config, struct weft_udp *udp,
                               struct weft_addr *addr_p, struct weft_error *error)
{
    weft_status status =
        weft_sock_addr_usable(config->host, config->port, udp->base.loopback_only, addr_p, error);
    if (status != WEFT_OK) {
        return status;
    }
    struct weft_sock_request request = {.buffer_bytes = config->socket_buffer_bytes,
                                        .gro = config->gro != 0};
    status = weft_sock_open(addr_p, &request, &udp->socket_fd, &udp->facts, error);
    if (status != WEFT_OK) {
        return status;
    }
    udp->base.family = weft_sock_addr_family(addr_p);
    udp->base.port = udp->facts.port;
    return weft_driver_watch(&udp->base, udp->socket_fd, error);
}

/* Endpoints of this process off loopback, which share the host's queue: their number, and above it
 * the process id, because a forked process does not use the endpoints of its parent. */
static atomic_uint_fast64_t on_links;

enum { PID_SHIFT = 32 };

bool weft_udp_has_siblings(void)
{
    return (uint32_t)atomic_load_explicit(&on_links, memory_order_relaxed) > 1;
}

static void link_join(struct weft_udp *udp)
{
    uint64_t pid = (uint64_t)getpid(), before = atomic_load(&on_links), next;
    do {
        next = before >> PID_SHIFT == pid ? before + 1 : pid << PID_SHIFT | 1;
    } while (!atomic_compare_exchange_weak(&on_links, &before, next));
    udp->link_pid = (pid_t)pid;
}

static void link_leave(const struct weft_udp *udp)
{
    if (udp->link_pid != 0 && udp->link_pid == getpid()) {
        atomic_fetch_sub(&on_links, 1);
    }
}

static weft_status open_endpoint(const struct weft_udp_config *config, struct weft_udp *udp,
                                 bool loopback, struct weft_error *error)
{
    struct weft_ep_config ep = config->ep;
    /* Off loopback, too: a configuration is right or wrong on every host. */
    weft_status status = weft_ep_config_check_loopback(config->loopback_packet_bytes, error);
    if (status != WEFT_OK) {
        return status;
    }
    if (loopback && config->loopback_packet_bytes != 0) {
        ep.packet_bytes = config->loopback_packet_bytes;
    }
    ep.rx_window = window_of(ep.rx_window, ep.packet_bytes, udp->facts.recv_buffer_bytes);
    ep.same_host = loopback;   /* a socket bound to it reaches nothing else */
    ep.host_queue = !loopback; /* loopback has no queue */
    if (ep.packet_bytes_sure == 0 && !loopback) {
        ep.packet_bytes_sure = SURE_BYTES; /* longer packets are probed first */
    }
    status = weft_ep_config_check(&ep, WEFT_DRIVER_UDP, error);
    if (status != WEFT_OK) {
        return status;
    }
    status = weft_ep_new(&ep, &udp->ep);
    if (status == WEFT_OK && !loopback) {
        link_join(udp);
    }
    return status == WEFT_OK
               ? status
               : weft_fail(error, status, "the endpoint: %s", weft_status_text(status));
}

/* The delayed-ack thread has the endpoint. */
static void send_delayed(void *arg)
{
    weft_udp_send_all(arg);
}

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

static weft_status open_parts(const struct weft_udp_config *config, struct weft_udp *udp,
                              struct weft_error *error)
{
    struct weft_addr addr;
    weft_status status = open_socket(config, udp, &addr, error);
    if (status != WEFT_OK) {
        return status;
    }
    bool loopback = weft_sock_addr_is_loopback(&addr);
    if (config->blocking_receive > 0 && loopback && config->loss.loss_ppm == 0) {
        (void)!weft_blocking_receive_open(&udp->blocking, udp->socket_fd, &udp->facts.bound,
                                          config->blocking_receive);
    }
    status = weft_rx_new(udp->socket_fd, &udp->rx);
    if (status != WEFT_OK) {
        return weft_fail(error, status, "no memory for receive buffers");
    }
    status = open_endpoint(config, udp, loopback, error);
    if (status == WEFT_OK && config->delayed_ack_ns > 0) {
        status = open_delayed_ack(config, udp, error);
    }
    return status;
}

static void release(struct weft_udp *udp)
{
    weft_delayed_ack_free(udp->delayed_ack);
    link_leave(udp);
    weft_ep_free(udp->ep);
    weft_rx_free(udp->rx);
    weft_link_counter_close(&udp->link);
    weft_poller_close(&udp->base.poller);
    if (udp->socket_fd >= 0) {
        (void)close(udp->socket_fd);
    }
    free(udp);
}

/* ---- the functions of a driver --------------------------------------------------------------- */

static bool udp_rest(struct weft_driver *driver, uint64_t until_ns)
{
    struct weft_udp *udp = weft_udp_of(driver);
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
    weft_blocking_receive_wake(&weft_udp_of(driver)->blocking);
    weft_poller_wake(&driver->poller); /* keep last: the woken thread may close at once */
}

static void udp_flush(struct weft_driver *driver)
{
    struct weft_udp *udp = weft_udp_of(driver);
    bool entered = weft_udp_enter(udp);
    weft_udp_send_all(udp);
    weft_udp_exit(udp, entered);
}

static void udp_idle(struct weft_driver *driver)
{
    struct weft_udp *udp = weft_udp_of(driver);
    (void)weft_delayed_ack_enter(udp->delayed_ack);
    weft_ep_idle(udp->ep, weft_clock_now_ns());
    weft_udp_send_all(udp);
}

static void udp_acknowledge(struct weft_driver *driver)
{
    struct weft_udp *udp = weft_udp_of(driver);
    bool entered = weft_udp_enter(udp);
    weft_ep_acknowledge(udp->ep);
    weft_udp_send_all(udp);
    weft_udp_exit(udp, entered);
}

/* CLOSE is repeated until the other end answers, for a short while. */
static bool close_unanswered(struct weft_driver *driver)
{
    return weft_ep_busy(weft_udp_of(driver)->ep);
}

static void udp_close(struct weft_driver *driver)
{
    struct weft_udp *udp = weft_udp_of(driver);
    (void)weft_delayed_ack_enter(udp->delayed_ack);
    for (weft_peer peer = 0; peer < udp->peers_max; peer++) {
        weft_ep_close(udp->ep, peer, weft_clock_now_ns());
    }
    weft_driver_finish(driver, close_unanswered);
    weft_udp_send_all(udp);
    weft_udp_observe(udp, true);
    release(udp);
}

static weft_status udp_connect(struct weft_driver *driver, const struct weft_addr *addr,
                               weft_peer *peer_p)
{
    struct weft_udp *udp = weft_udp_of(driver);
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
    struct weft_udp *udp = weft_udp_of(driver);
    bool entered = weft_udp_enter(udp);
    (replaced ? weft_ep_refuse : weft_ep_close)(udp->ep, peer, weft_clock_now_ns());
    weft_udp_exit(udp, entered);
}

static void udp_counters(struct weft_driver *driver, struct weft_driver_counters *counters_p)
{
    struct weft_udp *udp = weft_udp_of(driver);
    bool entered = weft_udp_enter(udp);
    counters_p->socket = *weft_udp_counters(udp);
    counters_p->ep = *weft_ep_counters(udp->ep);
    weft_udp_exit(udp, entered);
}

static bool udp_busy(struct weft_driver *driver)
{
    struct weft_udp *udp = weft_udp_of(driver);
    bool entered = weft_udp_enter(udp);
    bool busy = weft_ep_busy(udp->ep);
    weft_udp_exit(udp, entered);
    return busy;
}

static enum weft_ep_hint udp_hint(struct weft_driver *driver)
{
    struct weft_udp *udp = weft_udp_of(driver);
    bool entered = weft_udp_enter(udp);
    enum weft_ep_hint hint = weft_ep_hint(udp->ep);
    weft_udp_exit(udp, entered);
    return hint;
}

static uint64_t udp_srtt_ns(struct weft_driver *driver, weft_peer peer)
{
    struct weft_udp *udp = weft_udp_of(driver);
    bool entered = weft_udp_enter(udp);
    uint64_t srtt_ns = weft_ep_srtt_ns(udp->ep, peer);
    weft_udp_exit(udp, entered);
    return srtt_ns;
}

static uint32_t udp_grid(struct weft_driver *driver, weft_peer peer, uint16_t elem_bytes,
                         uint32_t total)
{
    struct weft_udp *udp = weft_udp_of(driver);
    bool entered = weft_udp_enter(udp);
    uint32_t elems = weft_ep_grid(udp->ep, peer, elem_bytes, total);
    weft_udp_exit(udp, entered);
    return elems;
}

static const struct weft_driver_ops udp_ops = {
    .kind = WEFT_DRIVER_UDP,
    .connect = udp_connect,
    .disconnect = udp_disconnect,
    .step = weft_udp_step,
    .rest = udp_rest,
    .wake = udp_wake,
    .flush = udp_flush,
    .idle = udp_idle,
    .acknowledge = udp_acknowledge,
    .close = udp_close,
    .counters = udp_counters,
    .busy = udp_busy,
    .hint = udp_hint,
    .srtt_ns = udp_srtt_ns,
    .grid = udp_grid,
};

/* ---- public functions ------------------------------------------------------------------------ */

weft_status weft_udp_open(const struct weft_udp_config *config, struct weft_driver **driver_p,
                          struct weft_error *error)
{
    if (config->loss.loss_ppm > WEFT_PPM) {
        return weft_fail(error, WEFT_INVALID,
                         "injected loss of %u ppm is out of range; it must be at most 1000000",
                         config->loss.loss_ppm);
    }
    if (config->delayed_ack_ns > 0 && config->before_send.call != NULL) {
        return weft_fail(error, WEFT_INVALID,
                         "before_send cannot be combined with delayed_ack_ns, whose thread sends, "
                         "too; set delayed_ack_ns to 0");
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
    weft_link_counter_init(&udp->link);
    weft_status status = open_parts(config, udp, error);
    if (status != WEFT_OK) {
        release(udp);
        return status;
    }
    weft_sender_init(&udp->sender, udp->socket_fd, udp->base.family,
                     udp->facts.gso && config->gso != 0);
    weft_udp_errors_init(&udp->errors, udp->socket_fd, udp->base.family);
    udp->peers_max = config->ep.peers_max;
    udp->observer = config->observer;
    weft_inject_loss_init(&udp->loss, &config->loss);
    udp->base.msgr =
        udp->delayed_ack != NULL ? weft_delayed_ack_msgr(udp->delayed_ack) : weft_ep_msgr(udp->ep);
    weft_clock_timers_exact();
    *driver_p = &udp->base;
    return WEFT_OK;
}

struct weft_udp *weft_driver_udp(struct weft_driver *driver)
{
    return driver->ops == &udp_ops ? weft_udp_of(driver) : NULL;
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
