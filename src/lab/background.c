#include "lab/background_internal.h"

#include "base/assert.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

const char *const weft_background_class_names[WEFT_BACKGROUND_CLASSES] = {
    "below_100kb", "100kb_to_10mb", "above_10mb", "all",
};

enum { BACKLOG = 1024, EVENTS = 256, DESCRIPTORS_SPARE = 64 };

int weft_background_watch(struct weft_background *b, int fd, uint32_t events,
                          enum weft_background_kind kind, uint32_t index, uint32_t generation)
{
    struct epoll_event event = {
        .events = events,
        .data.u64 = (uint64_t)generation << 32 | index << 3 | (uint32_t)kind,
    };
    return epoll_ctl(b->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0 ? 0 : errno;
}

int weft_background_go_to(struct weft_background *b, uint32_t host)
{
    if (b->here == host) {
        return 0;
    }
    if (setns(b->config->netns[host], CLONE_NEWNET) != 0) {
        return errno;
    }
    b->here = host;
    return 0;
}

/* ---- preparation ----------------------------------------------------------------------------- */

/* Two descriptors per flow, one per host. Root may raise its own limit. */
static weft_status descriptors_allow(const struct weft_background_config *config,
                                     struct weft_error *error)
{
    rlim_t want = 2 * (rlim_t)config->flows_max + 2 * config->hosts + DESCRIPTORS_SPARE;
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < want) {
        limit.rlim_cur = want;
        limit.rlim_max = limit.rlim_max < want ? want : limit.rlim_max;
        if (setrlimit(RLIMIT_NOFILE, &limit) != 0) {
            return weft_fail(error, WEFT_IO,
                             "background: %u flows at a time need %llu file descriptors: %s",
                             config->flows_max, (unsigned long long)want, strerror(errno));
        }
    }
    return WEFT_OK;
}

/* Returns 0 or an errno. */
static int listen_on(struct weft_background *b, uint32_t host)
{
    const struct weft_background_config *config = b->config;
    struct sockaddr_in at = {
        .sin_family = AF_INET,
        .sin_port = htons(config->port),
        .sin_addr = b->addresses[host],
    };
    int on = 1;
    int code = weft_background_go_to(b, host);
    if (code != 0) {
        return code;
    }
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    b->listeners[host] = fd;
    /* DCTCP must be set before listen(), or ECN is not negotiated. */
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
        (config->cc != NULL && setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, config->cc,
                                          (socklen_t)strlen(config->cc)) != 0) ||
        bind(fd, (struct sockaddr *)&at, sizeof(at)) != 0 || listen(fd, BACKLOG) != 0) {
        return errno;
    }
    return weft_background_watch(b, fd, EPOLLIN, WEFT_BACKGROUND_LISTEN, host, 0);
}

static weft_status listen_all(struct weft_background *b, struct weft_error *error)
{
    for (uint32_t host = 0; host < b->config->hosts; host++) {
        const char *address = b->config->addresses[host];
        if (inet_pton(AF_INET, address, &b->addresses[host]) != 1) {
            return weft_fail(error, WEFT_IO, "background: no IPv4 address: %s", address);
        }
        int code = listen_on(b, host);
        if (code != 0) {
            return weft_fail(error, WEFT_IO, "background: sink on host %u, %s port %u%s%s: %s",
                             host, address, b->config->port, b->config->cc != NULL ? ", " : "",
                             b->config->cc != NULL ? b->config->cc : "", strerror(code));
        }
    }
    return WEFT_OK;
}

static bool arrays_new(struct weft_background *b)
{
    size_t hosts = b->config->hosts;
    b->addresses = calloc(hosts, sizeof(*b->addresses));
    b->listeners = calloc(hosts, sizeof(*b->listeners));
    b->owners = calloc(hosts << 16, sizeof(*b->owners));
    b->flows = calloc(b->config->flows_max, sizeof(*b->flows));
    if (b->addresses == NULL || b->listeners == NULL || b->owners == NULL || b->flows == NULL) {
        return false;
    }
    for (size_t i = 0; i < hosts; i++) {
        b->listeners[i] = -1;
    }
    for (uint32_t i = 0; i < b->config->flows_max; i++) {
        b->flows[i].out_fd = -1;
        b->flows[i].in_fd = -1;
        b->flows[i].next_free = i + 1 < b->config->flows_max ? i + 1 : WEFT_BACKGROUND_NONE;
    }
    return true;
}

static weft_status set_up(struct weft_background *b, struct weft_error *error)
{
    weft_status status = descriptors_allow(b->config, error);
    if (status != WEFT_OK) {
        return status;
    }
    if (!arrays_new(b)) {
        return weft_fail(error, WEFT_NOMEM, "background: no memory");
    }
    b->own_netns = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    b->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    b->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (b->own_netns < 0 || b->epoll_fd < 0 || b->timer_fd < 0 ||
        weft_background_watch(b, b->timer_fd, EPOLLIN, WEFT_BACKGROUND_TIMER, 0, 0) != 0 ||
        (b->config->stop_fd >= 0 &&
         weft_background_watch(b, b->config->stop_fd, EPOLLIN, WEFT_BACKGROUND_STOP, 0, 0) != 0)) {
        return weft_fail(error, WEFT_IO, "background: %s", strerror(errno));
    }
    return listen_all(b, error);
}

static void take_down(struct weft_background *b)
{
    for (uint32_t i = 0; b->flows != NULL && i < b->config->flows_max; i++) {
        if (b->flows[i].out_fd >= 0) {
            weft_background_flow_end(b, &b->flows[i]);
        }
    }
    for (uint32_t i = 0; b->listeners != NULL && i < b->config->hosts; i++) {
        if (b->listeners[i] >= 0) {
            (void)close(b->listeners[i]);
        }
    }
    if (b->own_netns >= 0 && b->here != WEFT_BACKGROUND_NONE) {
        WEFT_ASSERT(setns(b->own_netns, CLONE_NEWNET) == 0);
    }
    int fds[] = {b->own_netns, b->epoll_fd, b->timer_fd};
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(fds); i++) {
        if (fds[i] >= 0) {
            (void)close(fds[i]);
        }
    }
    free(b->addresses);
    free(b->listeners);
    free(b->owners);
    free(b->flows);
}

/* ---- the loop -------------------------------------------------------------------------------- */

static void alarm_at(const struct weft_background *b, uint64_t at_ns)
{
    struct itimerspec at = {
        .it_value = {.tv_sec = (time_t)(at_ns / WEFT_NS_PER_S),
                     .tv_nsec = (long)(at_ns % WEFT_NS_PER_S)},
    };
    (void)timerfd_settime(b->timer_fd, TFD_TIMER_ABSTIME, &at, NULL);
}

/* Wait for events, at most until at_ns, and handle them. Returns true if a stop was requested;
 * *code_p is an errno of epoll. */
static bool turn(struct weft_background *b, uint64_t at_ns, int *code_p)
{
    struct epoll_event events[EVENTS];
    alarm_at(b, at_ns);
    int count = epoll_wait(b->epoll_fd, events, EVENTS, -1);
    *code_p = count < 0 && errno != EINTR ? errno : 0;
    bool stop = false;
    for (int i = 0; i < count; i++) {
        uint64_t what = events[i].data.u64;
        enum weft_background_kind kind = (enum weft_background_kind)(what & 7);
        uint32_t index = (uint32_t)what >> 3;
        switch (kind) {
        case WEFT_BACKGROUND_OUT:
        case WEFT_BACKGROUND_IN:
            weft_background_flow_event(b, kind, index, (uint32_t)(what >> 32), events[i].events);
            break;
        case WEFT_BACKGROUND_LISTEN:
            weft_background_flow_accept(b, index);
            break;
        case WEFT_BACKGROUND_TIMER: /* set before each wait, which also clears it */
            break;
        case WEFT_BACKGROUND_STOP:
            stop = true;
            break;
        }
    }
    return stop;
}

/* Run flows that arrive before end_ns; all of them are started, so that a run to the end equals
 * the plan. */
static weft_status run_plan(struct weft_background *b, uint64_t end_ns, bool *stopped_p,
                            struct weft_error *error)
{
    struct weft_flow_arrival next;
    weft_flow_plan_next(&b->plan, &next);
    int code = 0;
    bool stop = false;
    uint64_t now = weft_lab_now_ns();
    while (!stop && code == 0) {
        uint64_t due = b->begun_ns + next.at_ns;
        for (; due <= now && due < end_ns; due = b->begun_ns + next.at_ns) {
            b->report->late_ns_max = weft_max_u64(b->report->late_ns_max, now - due);
            weft_background_flow_begin(b, &next);
            weft_flow_plan_next(&b->plan, &next);
        }
        if (now >= end_ns) {
            break;
        }
        stop = turn(b, weft_min_u64(due, end_ns), &code);
        now = weft_lab_now_ns();
    }
    b->report->span_ns = weft_min_u64(now, end_ns) - b->begun_ns;
    b->report->delivered_bytes = b->received;
    *stopped_p = stop;
    return code == 0 ? WEFT_OK : weft_fail(error, WEFT_IO, "background: %s", strerror(code));
}

static weft_status drain(struct weft_background *b, uint64_t end_ns, struct weft_error *error)
{
    int code = 0;
    while (code == 0 && b->under_way > 0 && weft_lab_now_ns() < end_ns && !turn(b, end_ns, &code)) {
    }
    return code == 0 ? WEFT_OK : weft_fail(error, WEFT_IO, "background: %s", strerror(code));
}

weft_status weft_background_run(const struct weft_background_config *config,
                                struct weft_background_report *report_p, struct weft_error *error)
{
    WEFT_ASSERT(config->hosts >= 2 && config->hosts <= WEFT_LAB_HOSTS_MAX);
    WEFT_ASSERT(config->flows_max >= 1 && config->flows_max <= WEFT_BACKGROUND_FLOWS_MAX);
    struct weft_background b = {
        .config = config,
        .report = report_p,
        .own_netns = -1,
        .epoll_fd = -1,
        .timer_fd = -1,
        .here = WEFT_BACKGROUND_NONE,
        .free_first = 0,
    };
    memset(report_p, 0, sizeof(*report_p));
    weft_flow_plan_init(&b.plan, config->sizes, config->hosts, config->rate_bps, config->load_ppm,
                        config->seed);
    weft_status status = set_up(&b, error);
    if (status == WEFT_OK) {
        bool stopped = false;
        if (config->ready_fd >= 0) {
            (void)!write(config->ready_fd, "r", 1);
        }
        b.begun_ns = weft_lab_now_ns();
        uint64_t end_ns = weft_time_add(b.begun_ns, config->duration_ns);
        status = run_plan(&b, end_ns, &stopped, error);
        if (status == WEFT_OK && !stopped) {
            status = drain(&b, weft_time_add(end_ns, config->drain_ns), error);
        }
        report_p->unfinished_flows = b.under_way;
    }
    take_down(&b);
    return status;
}

/* ---- parsing --------------------------------------------------------------------------------- */

/* A load above the links' capacity is a valid test; a hundred times as much is a typing error. */
static const double load_max = 10;

weft_status weft_background_parse(const char *order, struct weft_flow_sizes *sizes_p,
                                  uint32_t *load_ppm_p, struct weft_error *error)
{
    char sizes[512];
    const char *colon = strrchr(order, ':');
    size_t length = colon != NULL ? (size_t)(colon - order) : 0;
    char *end = NULL;
    double load = colon != NULL ? strtod(colon + 1, &end) : 0;
    if (length == 0 || length >= sizeof(sizes) || end == colon + 1 || *end != '\0' ||
        !(load >= 1e-6 && load <= load_max)) {
        return weft_fail(error, WEFT_INVALID,
                         "\"%.100s\": want SIZES:LOAD, as in websearch:0.3, with a load up to "
                         "10",
                         order);
    }
    memcpy(sizes, order, length);
    sizes[length] = '\0';
    *load_ppm_p = (uint32_t)(load * WEFT_PPM + 0.5);
    return weft_flow_sizes_load(sizes, sizes_p, error);
}

/* ---- results --------------------------------------------------------------------------------- */

static double load_of(const struct weft_background_config *config, uint64_t span_ns, uint64_t bytes)
{
    double full = (double)config->rate_bps / 8 * config->hosts * (double)span_ns / 1e9;
    return full > 0 ? (double)bytes / full : 0;
}

double weft_background_offered(const struct weft_background_config *config,
                               const struct weft_background_report *report)
{
    return load_of(config, report->span_ns, report->offered_bytes);
}

double weft_background_achieved(const struct weft_background_config *config,
                                const struct weft_background_report *report)
{
    return load_of(config, report->span_ns, report->delivered_bytes);
}
